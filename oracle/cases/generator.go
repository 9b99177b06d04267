package cases

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// Case is one generated scenario.
type Case struct {
	// Number counts from 1.
	Number int
	// Choice is what it was made of.
	Choice Choice
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

// Next makes the next case.
func (g *Generator) Next() Case {
	g.count++
	rng := rand.New(rand.NewPCG(uint64(g.seed), uint64(g.count)))
	choice, ok := g.cover.next(rng)
	if !ok {
		choice = random(rng)
	}
	return g.build(choice, rng)
}

// Pairs are how many pairs of levels have come up, and how many there are.
func (g *Generator) Pairs() (covered, all int) { return g.cover.all - len(g.cover.open), g.cover.all }

func (g *Generator) build(choice Choice, rng *rand.Rand) Case {
	s := build(choice, rng)
	s.ID = fmt.Sprintf("explore/seed-%d/case-%06d", g.seed, g.count)
	s.Description = fmt.Sprintf("Made up by authzconf explore, seed %d, case %d: %s.", g.seed, g.count, choice)
	return Case{Number: g.count, Choice: choice, Scenario: s}
}

// random takes any level of each factor. With grants taken that way most cases end in a denial early on, so half
// of them get grants that let them go further.
func random(rng *rand.Rand) (choice Choice) {
	for f := range factors {
		choice[f] = rng.IntN(len(factors[f].Levels))
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
