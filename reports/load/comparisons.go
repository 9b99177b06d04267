package load

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

type pair struct {
	number int
	a, b   *run.Block
}

type comparisonKey struct {
	name string
	aa   bool
}

type comparisonPairs struct {
	key      comparisonKey
	pairs    []pair
	problems []string
}

// groupPairs pairs the blocks of a run. A block without the name of a comparison belongs to none.
func groupPairs(r *run.Run) (all []comparisonPairs) {
	groups := map[comparisonKey]map[int]map[string][]*run.Block{} // by pair and role
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Comparison == "" {
			continue
		}
		key := comparisonKey{b.Comparison, b.AA}
		if groups[key] == nil {
			groups[key] = map[int]map[string][]*run.Block{}
		}
		if groups[key][b.Pair] == nil {
			groups[key][b.Pair] = map[string][]*run.Block{}
		}
		groups[key][b.Pair][b.Role] = append(groups[key][b.Pair][b.Role], b)
	}
	for key, pairs := range groups {
		g := comparisonPairs{key: key}
		for _, number := range slices.Sorted(maps.Keys(pairs)) {
			by := pairs[number]
			if len(by["A"]) != 1 || len(by["B"]) != 1 || len(by) != 2 {
				g.problems = append(g.problems, fmt.Sprintf("pair %d of %s has %d blocks as A and %d as B, expected one of each", number, key.name, len(by["A"]), len(by["B"])))
				continue
			}
			g.pairs = append(g.pairs, pair{number, by["A"][0], by["B"][0]})
		}
		for _, p := range g.pairs {
			if first := g.pairs[0]; keyOf(p.a) != keyOf(first.a) || keyOf(p.b) != keyOf(first.b) {
				g.problems = append(g.problems, fmt.Sprintf("pair %d of %s compares other variants or servers than pair %d", p.number, g.key.name, first.number))
			}
			if p.a.Start != p.b.Start {
				g.problems = append(g.problems, fmt.Sprintf("pair %d of %s has its sides in two starts of the servers, %d and %d", p.number, g.key.name, p.a.Start, p.b.Start))
			}
			if g.key.aa && p.a.Variant != p.b.Variant {
				g.problems = append(g.problems, fmt.Sprintf("pair %d of %s is called A/A and compares %s with %s", p.number, g.key.name, keyOf(p.a), keyOf(p.b)))
			}
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(x, y comparisonPairs) int {
		if x.key.aa != y.key.aa {
			return map[bool]int{true: 1, false: -1}[x.key.aa] // A/A last
		}
		return cmp.Compare(x.key.name, y.key.name)
	})
	return all
}

// compare says how the sides of a comparison differ, if it has what a claim needs.
func compare(g comparisonPairs, t Thresholds, need design) Comparison {
	has := g.design()
	c := Comparison{Name: g.key.name, AA: g.key.aa, Pairs: has.pairs, Starts: has.starts}
	var a, b []*run.Block
	for _, p := range g.pairs {
		a, b = append(a, p.a), append(b, p.b)
	}
	if len(g.pairs) > 0 {
		c.A, c.B = keyOf(a[0]).String(), keyOf(b[0]).String()
		c.oneProcess = a[0].Server == b[0].Server
	}
	c.ReviewsA, c.ReviewsB = meanReviews(a), meanReviews(b)
	c.Profiles = profileDifferences(g.pairs)
	c.P50, c.logP50 = effect(g.pairs, quantile(0.5), has, need)
	c.P99, _ = effect(g.pairs, quantile(0.99), has, need)
	c.CPU, _ = effect(g.pairs, serverCPU, has, need)
	margins := t.margins(g.key.name)
	if c.AA {
		margins = t.Comparisons[g.key.name] // only what was declared for it
	}
	c.P50.judge(margins.P50)
	c.P99.judge(margins.P99)
	return c
}

// compareAll compares groups. Those of A/A are a family of tests of their own.
func compareAll(groups []comparisonPairs, t Thresholds) (comparisons []Comparison) {
	tests := map[bool]int{}
	for _, g := range groups {
		tests[g.key.aa] += 2 // p50 and p99
	}
	comparisons = seq.Map(groups, func(g comparisonPairs) Comparison { return compare(g, t, t.forClaim(tests[g.key.aa])) })
	for _, aa := range []bool{false, true} {
		adjust(comparisons, aa, func(c *Comparison) []*Effect { return []*Effect{&c.P50, &c.P99} })
		adjust(comparisons, aa, func(c *Comparison) []*Effect { return []*Effect{&c.CPU} })
	}
	return comparisons
}

func (g comparisonPairs) design() design {
	starts := sets.New(seq.Map(g.pairs, func(p pair) int { return p.a.Start })...)
	return design{len(g.pairs), starts.Len()}
}

func meanReviews(blocks []*run.Block) float64 { return reviewRate("", blocks).PerRequest.Estimate }

// errorsCompared is the part of a block's answers that may be errors if latencies are compared: errors are often faster.
const errorsCompared = 0.01

func unmeasured(format string, args ...any) Effect {
	return Effect{Why: fmt.Sprintf(format, args...), P: 1, PHolm: 1}
}

// quantile is what a comparison of quantiles compares, in ms, if the block has the answers for it.
func quantile(q float64) func(*run.Block) (float64, string) {
	needed := statistics.SamplesNeeded(q, level)
	return func(b *run.Block) (float64, string) {
		if n := b.Latency.Count(); n < needed {
			return 0, fmt.Sprintf("a block of %d answers; a p%g needs %d", n, 100*q, needed)
		}
		return milliseconds(b.Latency.Quantile(q)), ""
	}
}

func serverCPU(b *run.Block) (float64, string) {
	u := usageOf([]*run.Block{b})[run.APIServer].PerRequest
	if u <= 0 {
		return 0, "a block that used no more processor time than an idle server"
	}
	return u, ""
}

// effect is the difference of something over starts, and the log-ratios of pairs.
func effect(pairs []pair, of func(*run.Block) (float64, string), has, need design) (Effect, []float64) {
	var values [2][]float64
	var difference []float64
	var starts []int
	for _, p := range pairs {
		for i, block := range []*run.Block{p.a, p.b} {
			if n, done := errorsOf(block), answered(block); float64(n) > errorsCompared*float64(done) {
				return unmeasured("pair %d has a block with %d errors in %d answers: it would compare failures", p.number, n, done), nil
			}
			x, why := of(block)
			if why != "" {
				return unmeasured("pair %d has %s", p.number, why), nil
			}
			values[i] = append(values[i], x)
		}
		n := len(starts)
		difference, starts = append(difference, values[1][n]-values[0][n]), append(starts, p.a.Start)
	}
	logs, err := statistics.LogRatios(values[0], values[1])
	if err != nil {
		return unmeasured("%s", err), nil
	}
	if !has.covers(need) {
		return unmeasured("%s; a claim needs %s", has, need), logs
	}
	means := statistics.StartMeans(starts, logs)
	change, _ := statistics.MeanInterval(means, level)
	ninety, _ := statistics.MeanInterval(means, 0.9)
	e := Effect{Measured: true, Change: change.Map(math.Expm1), Ninety: ninety.Map(math.Expm1), P: statistics.TTest(means)}
	e.Starts = seq.Map(means, math.Expm1)
	e.Milliseconds, _ = statistics.MeanInterval(statistics.StartMeans(starts, difference), level)
	e.PHolm = e.P
	return e, logs
}

func (e *Effect) judge(margin float64) {
	e.Margin = margin
	if margin <= 0 {
		return
	}
	e.Verdict = statistics.Undecided
	if e.Measured {
		e.Verdict = statistics.Equivalent90(e.Ninety.Map(math.Log1p), margin)
	}
}

// ToDecide is how many starts would decide what these do not, 0 if there is nothing to decide.
func (e Effect) ToDecide() int {
	if !e.Measured || e.Verdict != statistics.Undecided {
		return 0
	}
	return statistics.StartsToDecide(seq.Map(e.Starts, math.Log1p), e.Margin)
}

// adjust sets the p-values of one family for there being several.
func adjust(comparisons []Comparison, aa bool, family func(*Comparison) []*Effect) {
	var effects []*Effect
	var p []float64
	for i := range comparisons {
		for _, e := range family(&comparisons[i]) {
			if comparisons[i].AA == aa && e.Measured {
				effects, p = append(effects, e), append(p, e.P)
			}
		}
	}
	for i, adjusted := range statistics.Holm(p) {
		effects[i].PHolm = adjusted
	}
}

// FunctionShare is how often a program was in a function, as a part of the samples of its CPU profile on each side.
type FunctionShare struct {
	Function string  `json:"function"`
	A        float64 `json:"a"`
	B        float64 `json:"b"`
}

// ProfileDifference is what a program does otherwise on one side of a comparison than on the other.
type ProfileDifference struct {
	Program string `json:"program"`
	// SamplesA and SamplesB are how often the profiles looked, 100 times for each second of processor time.
	SamplesA int64 `json:"samplesA"`
	SamplesB int64 `json:"samplesB"`
	// Top are the functions with the most samples on both sides, Differ those whose share differs most, beyond chance.
	Top    []FunctionShare `json:"top"`
	Differ []FunctionShare `json:"differ,omitempty"`
}

const (
	shownFunctions = 8
	// leastSamples is without which the share of a function says nothing: one of a half is 5 % off as a rule.
	leastSamples = 100
	// surely is by how many standard errors a share has to differ: there are a hundred of them.
	surely = 4
)

// profileDifferences compares the profiles of the last pair that has some on both sides.
func profileDifferences(pairs []pair) (list []ProfileDifference) {
	for _, p := range slices.Backward(pairs) {
		for _, program := range slices.Sorted(maps.Keys(p.a.Profiles)) {
			a, b := p.a.Profiles[program], p.b.Profiles[program]
			if min(a.Samples, b.Samples) >= leastSamples {
				list = append(list, profileDifference(program, a, b))
			}
		}
		if len(list) > 0 {
			break
		}
	}
	return list
}

func profileDifference(program string, a, b run.CPUProfile) ProfileDifference {
	d := ProfileDifference{Program: program, SamplesA: a.Samples, SamplesB: b.Samples}
	both := run.Sum(maps.Clone(a.Functions), b.Functions)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		share := FunctionShare{name, float64(a.Functions[name]) / float64(a.Samples), float64(b.Functions[name]) / float64(b.Samples)}
		d.Top = append(d.Top, share)
		part := float64(both[name]) / float64(a.Samples+b.Samples)
		if math.Abs(share.B-share.A) > surely*math.Sqrt(part*(1-part)*(1/float64(a.Samples)+1/float64(b.Samples))) {
			d.Differ = append(d.Differ, share)
		}
	}
	slices.SortStableFunc(d.Top, func(x, y FunctionShare) int { return cmp.Compare(y.A+y.B, x.A+x.B) })
	slices.SortStableFunc(d.Differ, func(x, y FunctionShare) int { return cmp.Compare(math.Abs(y.B-y.A), math.Abs(x.B-x.A)) })
	d.Top, d.Differ = d.Top[:min(len(d.Top), shownFunctions)], d.Differ[:min(len(d.Differ), shownFunctions)]
	return d
}

// String is "12.3 %, then 14.0 %".
func (s FunctionShare) String() string { return fmt.Sprintf("%.1f %%, then %.1f %%", 100*s.A, 100*s.B) }
