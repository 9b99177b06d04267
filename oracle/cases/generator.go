// Package cases makes up scenarios about impersonation: what nobody thought of writing down. First every two
// levels of every two factors are brought together in some case (names that nearly parse, grants of every shape,
// headers, kinds of request, histories), then cases are random.
//
// A case is an ordinary scenario without expectations: who knows the server it is for fills them in. The same seed gives
// the same cases. The package also makes a scenario smaller while something stays true of it, and prints it.
package cases

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// Case is a scenario that `authzconf explore` makes, with the model's prediction as its expectation.
type Case struct {
	// Number counts from 1.
	Number int
	Choice Choice // what it was made of
	// Scenario has no expectations yet, and names no version and gate.
	Scenario *scenarios.Scenario
}

// Generator makes cases, always the same ones for a seed. It is not safe for use by several goroutines.
type Generator struct {
	seed  int64
	count int
	cover *cover
}

// New returns a generator.
func New(seed int64) *Generator {
	return &Generator{seed: seed, cover: newCover(rand.New(rand.NewPCG(uint64(seed), 0)))}
}

// Next returns the next case.
func (g *Generator) Next() Case {
	g.count++
	rng := rand.New(rand.NewPCG(uint64(g.seed), uint64(g.count)))
	choice, ok := g.cover.next(rng)
	if !ok {
		choice = chooseRandomly(rng)
	}
	s := build(choice, rng)
	s.ID = fmt.Sprintf("explore/seed-%d/case-%06d", g.seed, g.count)
	s.Description = fmt.Sprintf("Made up by authzconf explore, seed %d, case %d: %s.", g.seed, g.count, choice)
	return Case{Number: g.count, Choice: choice, Scenario: s}
}

// Pairs returns how many pairs of levels have come up, and how many there are.
func (g *Generator) Pairs() (covered, all int) { return g.cover.all - len(g.cover.open), g.cover.all }

// corpusYAML has choices that reached a statement of the API server which none before them had, or reached it in more of
// their requests. make explore-coverage writes it.
//
//go:embed corpus.yaml
var corpusYAML []byte

var corpus = fixtures.Table[[]string]("corpus.yaml", corpusYAML)

// mutate returns a choice of the corpus with one or two levels changed.
func mutate(rng *rand.Rand) Choice {
	choice := parse(pick(rng, corpus...))
	for range 1 + rng.IntN(2) {
		f := rng.IntN(len(factors))
		choice[f] = rng.IntN(len(factors[f].Levels))
	}
	return choice
}

// chooseRandomly takes any level of each factor. With grants taken that way most cases end in a denial early on, so half
// of them get grants that let them go further.
func chooseRandomly(rng *rand.Rand) (choice Choice) {
	if len(corpus) > 0 && rng.IntN(4) == 0 {
		return mutate(rng)
	}
	for f := range factors {
		choice[f] = rng.IntN(len(factors[f].Levels))
	}
	if rng.IntN(2) == 0 { // what no audit event shows is not judged
		choice[audit] = 0
	}
	if rng.IntN(2) == 0 { // what only a history brings about takes one
		choice[sequence] = slices.Index(factors[sequence].Levels, "walk")
	}
	if rng.IntN(2) == 0 {
		return choice
	}
	for f, levels := range map[int][]string{
		mode:     {"fitting", "all"},
		action:   {"exact", "verb-star", "all-resources"},
		identity: {"exact", "any", "everything", "names-star", "no-extra", "one-group-missing"},
	} {
		choice[f] = slices.Index(factors[f].Levels, levels[(choice[f]*7+choice[wanted])%len(levels)])
	}
	return choice
}
