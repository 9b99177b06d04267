// Package cases makes up scenarios about impersonation: what nobody thought of writing down. First every two
// levels of every two factors are brought together in some case (names that nearly parse, grants of every shape,
// headers, kinds of request, histories), then cases are random.
//
// A case is an ordinary scenario without expectations: who knows the server it is for fills them in. The same seed gives
// the same cases. The package also makes a scenario smaller while something stays true of it, and prints it.
package cases

import (
	"cmp"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// Case is one generated scenario.
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

// Next makes the next case.
func (g *Generator) Next() Case {
	g.count++
	rng := rand.New(rand.NewPCG(uint64(g.seed), uint64(g.count)))
	choice, ok := g.cover.next(rng)
	if !ok {
		choice = random(rng)
	}
	s := build(choice, rng)
	s.ID = fmt.Sprintf("explore/seed-%d/case-%06d", g.seed, g.count)
	s.Description = fmt.Sprintf("Made up by authzconf explore, seed %d, case %d: %s.", g.seed, g.count, choice)
	return Case{Number: g.count, Choice: choice, Scenario: s}
}

// Pairs are how many pairs of levels have come up, and how many there are.
func (g *Generator) Pairs() (covered, all int) { return g.cover.all - len(g.cover.open), g.cover.all }

// corpusYAML has choices that reached a statement of the API server which none before them had, or reached it in more of
// their requests. make explore-coverage writes it.
//
//go:embed corpus.yaml
var corpusYAML []byte

var corpus = fixtures.Table[[]string]("corpus.yaml", corpusYAML)

// parse reads what String of a choice has written.
func parse(text string) (choice Choice) {
	for word := range strings.FieldsSeq(text) {
		name, level, _ := strings.Cut(word, "=")
		if f := slices.IndexFunc(factors[:], func(f Factor) bool { return f.Name == name }); f >= 0 {
			choice[f] = max(0, slices.Index(factors[f].Levels, level))
		}
	}
	return choice
}

// mutated is a choice of the corpus with one or two levels changed.
func mutated(rng *rand.Rand) Choice {
	choice := parse(pick(rng, corpus...))
	for range 1 + rng.IntN(2) {
		f := rng.IntN(len(factors))
		choice[f] = rng.IntN(len(factors[f].Levels))
	}
	return choice
}

// random takes any level of each factor. With grants taken that way most cases end in a denial early on, so half
// of them get grants that let them go further.
func random(rng *rand.Rand) (choice Choice) {
	if len(corpus) > 0 && rng.IntN(4) == 0 {
		return mutated(rng)
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

// pair is two levels of two factors, the first factor before the second.
type pair struct{ factor, level, factor2, level2 int }

// cover chooses levels so that every pair comes up in few choices.
type cover struct {
	all  int
	open map[pair]bool
	list []pair // in a random order; those that are covered are skipped
}

func newCover(rng *rand.Rand) *cover {
	c := &cover{open: map[pair]bool{}}
	for f := range factors {
		for f2 := f + 1; f2 < factorCount; f2++ {
			for l := range factors[f].Levels {
				for l2 := range factors[f2].Levels {
					p := pair{f, l, f2, l2}
					c.open[p] = true
					c.list = append(c.list, p)
				}
			}
		}
	}
	c.all = len(c.list)
	rng.Shuffle(c.all, func(i, j int) { c.list[i], c.list[j] = c.list[j], c.list[i] })
	return c
}

// next starts from a pair that did not come up yet, and gives each other factor, in a random order, the level that
// brings the most new pairs. It is false when all came up.
func (c *cover) next(rng *rand.Rand) (choice Choice, ok bool) {
	for len(c.list) > 0 && !c.open[c.list[0]] {
		c.list = c.list[1:]
	}
	if len(c.list) == 0 {
		return choice, false
	}
	first := c.list[0]
	choice[first.factor], choice[first.factor2] = first.level, first.level2
	set := []int{first.factor, first.factor2}
	for _, f := range rng.Perm(factorCount) {
		if f == first.factor || f == first.factor2 {
			continue
		}
		best, most := 0, -1
		for _, l := range rng.Perm(len(factors[f].Levels)) {
			fresh := 0
			for _, other := range set {
				p := pair{f, l, other, choice[other]}
				if other < f {
					p = pair{other, choice[other], f, l}
				}
				if c.open[p] {
					fresh++
				}
			}
			if fresh > most {
				best, most = l, fresh
			}
		}
		choice[f] = best
		set = append(set, f)
	}
	for f := range factors {
		for f2 := f + 1; f2 < factorCount; f2++ {
			delete(c.open, pair{f, choice[f], f2, choice[f2]})
		}
	}
	return choice, true
}

// Factor is one thing in which cases differ.
type Factor struct {
	Name   string   `json:"name"`
	Levels []string `json:"levels"`
}

// The factors, by their place in a Choice.
const (
	wanted = iota
	requestor
	uid
	groups
	extra
	mode
	action
	identity
	legacy
	request
	selector
	rights
	sequence
	change
	audit
	factorCount
)

//go:embed factors.yaml
var factorsYAML []byte

var factors = fixtures.Table[[factorCount]Factor]("factors.yaml", factorsYAML)

// Choice is one level of each factor, by index.
type Choice [factorCount]int

func (c Choice) level(f int) string { return factors[f].Levels[c[f]] }

func (c Choice) is(f int, levels ...string) bool { return slices.Contains(levels, c.level(f)) }

// String names the factors that are not at their first level.
func (c Choice) String() string {
	var parts []string
	for f := range factors {
		if c[f] != 0 {
			parts = append(parts, factors[f].Name+"="+c.level(f))
		}
	}
	return cmp.Or(strings.Join(parts, " "), "everything at its first level")
}
