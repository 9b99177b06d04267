package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
)

// pair has the blocks that are compared with each other: those of the baseline, and one of the other side. In a round
// the baseline has a block of each server that is like the one of the comparison. In a pair it has one block.
type pair struct {
	number int
	a      []*run.Block
	b      *run.Block
}

type comparisonKey struct {
	name string
	aa   bool
}

// comparisonPairs are the pairs of one comparison, and what is wrong with blocks that are not pairs.
type comparisonPairs struct {
	key      comparisonKey
	pairs    []pair
	problems []string
}

// sides are the blocks of a pair by their role.
type sides map[string][]*run.Block

// groupPairs pairs the blocks of a run in each comparison that uses them.
func groupPairs(r *run.Run) (all []comparisonPairs) {
	groups := map[comparisonKey]map[int]sides{}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		for _, use := range b.Uses {
			key := comparisonKey{use.Comparison, use.AA}
			if groups[key] == nil {
				groups[key] = map[int]sides{}
			}
			if groups[key][b.Pair] == nil {
				groups[key][b.Pair] = sides{}
			}
			groups[key][b.Pair][use.Role] = append(groups[key][b.Pair][use.Role], b)
		}
	}
	for key, pairs := range groups {
		all = append(all, pairSides(key, pairs))
	}
	slices.SortFunc(all, func(x, y comparisonPairs) int { return x.key.compare(y.key) })
	return all
}

// compare orders comparisons by their names, with A/A last.
func (k comparisonKey) compare(other comparisonKey) int {
	if k.aa != other.aa {
		if k.aa {
			return 1
		}
		return -1
	}
	return cmp.Compare(k.name, other.name)
}

// pairSides makes pairs of the blocks that have the same number: one of each variant and server.
func pairSides(key comparisonKey, byNumber map[int]sides) comparisonPairs {
	g := comparisonPairs{key: key}
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		s := byNumber[number]
		whole := len(s["A"]) > 0 && len(s["B"]) == 1 && len(s) == 2 && areDifferent(s["A"])
		if !whole {
			g.addProblem("pair %d of %s has %d blocks as A and %d as B, expected one of each", number, key.name, len(s["A"]), len(s["B"]))
			continue
		}
		g.pairs = append(g.pairs, pair{number, s["A"], s["B"][0]})
	}
	for _, p := range g.pairs {
		g.checkPair(p, g.pairs[0])
	}
	return g
}

// areDifferent reports whether no two blocks are of the same variant and server. It puts them in order.
func areDifferent(blocks []*run.Block) bool {
	slices.SortFunc(blocks, func(x, y *run.Block) int { return KeyOf(x).Compare(KeyOf(y)) })
	keys := seq.Map(blocks, KeyOf)
	return len(slices.Compact(keys)) == len(blocks)
}

func (g *comparisonPairs) addProblem(format string, args ...any) {
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

// checkPair finds a pair that does not compare the same as the first one, or whose blocks belong to different starts.
func (g *comparisonPairs) checkPair(p, first pair) {
	if !slices.Equal(p.keys(), first.keys()) {
		g.addProblem("pair %d of %s compares other variants or servers than pair %d", p.number, g.key.name, first.number)
	}
	for _, a := range p.a {
		if a.Start != p.b.Start {
			g.addProblem("pair %d of %s has its sides in two starts of the servers, %d and %d", p.number, g.key.name, a.Start, p.b.Start)
		}
		if g.key.aa && a.Variant != p.b.Variant {
			g.addProblem("pair %d of %s is called A/A and compares %s with %s", p.number, g.key.name, KeyOf(a), KeyOf(p.b))
		}
	}
}

// keys returns the variants and servers of a pair, beginning with those of the baseline.
func (p pair) keys() []VariantKey { return append(seq.Map(p.a, KeyOf), KeyOf(p.b)) }

// leaveOutDisturbed returns the comparison without the pairs in which a block had to share the machine.
func (g comparisonPairs) leaveOutDisturbed(processors int) comparisonPairs {
	isDisturbed := func(b *run.Block) bool { return b.FindDisturbance(processors) != "" }
	g.pairs = slices.DeleteFunc(slices.Clone(g.pairs), func(p pair) bool {
		return isDisturbed(p.b) || slices.ContainsFunc(p.a, isDisturbed)
	})
	return g
}

func (g comparisonPairs) design() design {
	starts := sets.New(seq.Map(g.pairs, func(p pair) int { return p.b.Start })...)
	return design{len(g.pairs), starts.Len()}
}
