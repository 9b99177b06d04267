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

// pair is two blocks that are compared.
type pair struct {
	number int
	a, b   *run.Block
}

type comparisonKey struct {
	name string
	aa   bool
}

// comparisonPairs are the pairs of one comparison, and what is wrong with those that are none.
type comparisonPairs struct {
	key      comparisonKey
	pairs    []pair
	problems []string
}

// sides are the blocks of a pair by their role.
type sides map[string][]*run.Block

// groupPairs pairs the blocks of a run. A block without the name of a comparison belongs to none.
func groupPairs(r *run.Run) (all []comparisonPairs) {
	groups := map[comparisonKey]map[int]sides{}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Comparison == "" {
			continue
		}
		key := comparisonKey{b.Comparison, b.AA}
		if groups[key] == nil {
			groups[key] = map[int]sides{}
		}
		if groups[key][b.Pair] == nil {
			groups[key][b.Pair] = sides{}
		}
		groups[key][b.Pair][b.Role] = append(groups[key][b.Pair][b.Role], b)
	}
	for key, pairs := range groups {
		all = append(all, pairSides(key, pairs))
	}
	slices.SortFunc(all, func(x, y comparisonPairs) int { return x.key.compare(y.key) })
	return all
}

// compare puts comparisons in order of their names, A/A last.
func (k comparisonKey) compare(other comparisonKey) int {
	if k.aa != other.aa {
		if k.aa {
			return 1
		}
		return -1
	}
	return cmp.Compare(k.name, other.name)
}

// pairSides makes pairs of the blocks that have the same number, one of each role.
func pairSides(key comparisonKey, byNumber map[int]sides) comparisonPairs {
	g := comparisonPairs{key: key}
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		s := byNumber[number]
		whole := len(s["A"]) == 1 && len(s["B"]) == 1 && len(s) == 2
		if !whole {
			g.addProblem("pair %d of %s has %d blocks as A and %d as B, expected one of each", number, key.name, len(s["A"]), len(s["B"]))
			continue
		}
		g.pairs = append(g.pairs, pair{number, s["A"][0], s["B"][0]})
	}
	for _, p := range g.pairs {
		g.checkPair(p, g.pairs[0])
	}
	return g
}

func (g *comparisonPairs) addProblem(format string, args ...any) {
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

// checkPair finds a pair that does not compare what the first one does, or not in one start.
func (g *comparisonPairs) checkPair(p, first pair) {
	if KeyOf(p.a) != KeyOf(first.a) || KeyOf(p.b) != KeyOf(first.b) {
		g.addProblem("pair %d of %s compares other variants or servers than pair %d", p.number, g.key.name, first.number)
	}
	if p.a.Start != p.b.Start {
		g.addProblem("pair %d of %s has its sides in two starts of the servers, %d and %d", p.number, g.key.name, p.a.Start, p.b.Start)
	}
	if g.key.aa && p.a.Variant != p.b.Variant {
		g.addProblem("pair %d of %s is called A/A and compares %s with %s", p.number, g.key.name, KeyOf(p.a), KeyOf(p.b))
	}
}

func (g comparisonPairs) design() design {
	starts := sets.New(seq.Map(g.pairs, func(p pair) int { return p.a.Start })...)
	return design{len(g.pairs), starts.Len()}
}
