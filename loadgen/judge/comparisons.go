package judge

import (
	"fmt"
	"math"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// compareSides returns how the sides of a comparison differ, if it has what a claim needs.
func compareSides(g comparisonPairs, t Thresholds, need design, processors int) Comparison {
	has := g.design()
	c := Comparison{Name: g.key.name, AA: g.key.aa, Pairs: has.pairs, Starts: has.starts}
	var a, b []*run.Block
	for _, p := range g.pairs {
		a, b = append(a, p.a...), append(b, p.b)
	}
	if len(g.pairs) > 0 {
		first := g.pairs[0]
		c.A, c.B = KeyOf(first.a[0]).String(), KeyOf(first.b).String()
		c.Twins = seq.Map(first.a[1:], func(b *run.Block) string { return KeyOf(b).String() })
		c.oneProcess = first.a[0].Server == first.b.Server
	}
	c.ReviewsA, c.ReviewsB = meanReviews(a), meanReviews(b)
	c.Profiles = compareProfiles(g.pairs)
	margins := t.margins(g.key.name)
	if c.AA {
		margins = t.sameMargins(g.key.name)
	}
	quiet := g.leaveOutDisturbed(processors)
	c.Disturbed = len(g.pairs) - len(quiet.pairs)
	for _, q := range c.quantities(margins) {
		var logs []float64
		*q.effect, logs = measureEffect(quiet.pairs, q.measure, quiet.design(), need)
		if !q.effect.Measured && c.Disturbed > 0 {
			q.effect.Why += fmt.Sprintf("; %d more pairs are left out, because others used the machine", c.Disturbed)
		}
		q.effect.judge(q.margin)
		if q.limit == P50Margin {
			c.logP50 = logs
		}
	}
	return c
}

// testsEach is how many tests a comparison makes: of its p50, of its p99, and of the processor time of the API server.
const testsEach = 3

// compareAll compares groups. All tests are one family, except that those of A/A are another.
func compareAll(groups []comparisonPairs, t Thresholds, processors int) (comparisons []Comparison) {
	isAA := func(g comparisonPairs) bool { return g.key.aa }
	same := testsEach * seq.Count(groups, isAA)
	others := testsEach*len(groups) - same
	for _, g := range groups {
		tests := others
		if isAA(g) {
			tests = same
		}
		comparisons = append(comparisons, compareSides(g, t, t.neededForClaim(tests), processors))
	}
	for _, aa := range []bool{false, true} {
		adjust(comparisons, aa)
	}
	return comparisons
}

func meanReviews(blocks []*run.Block) float64 {
	return measureReviews("", blocks, countWhole).PerRequest.Estimate
}

// ErrorsCompared is the part of a block's answers that may be errors if latencies are compared, because errors are
// often faster.
const ErrorsCompared = 0.01

func unmeasured(format string, args ...any) Effect {
	return Effect{Why: fmt.Sprintf(format, args...), P: 1, PHolm: 1}
}

// MeasureQuantile returns a function that measures a quantile of a block in ms, or says why the block has none.
func MeasureQuantile(q float64) Measurement {
	samples := statistics.SamplesNeeded(q, level)
	return func(b *run.Block) (float64, string) {
		if n := b.Latency.Count(); n < samples {
			return 0, fmt.Sprintf("a block of %d answers; a p%g needs %d", n, 100*q, samples)
		}
		return milliseconds(b.Latency.Quantile(q)), ""
	}
}

// MeasureCPU returns the processor time in ms that the API server used for a request of a block, or why that is not
// known.
func MeasureCPU(b *run.Block) (float64, string) {
	u := measureUsage([]*run.Block{b})[run.APIServer].PerRequest
	if u <= 0 {
		return 0, "a block that used no more processor time than an idle server"
	}
	return u, ""
}

// Measurement returns the compared value of a block, or why the block has none.
type Measurement func(*run.Block) (value float64, why string)

// measurements are the values of pairs, in their order.
type measurements struct {
	a, b, differences []float64
	starts            []int
}

// measurePairs measures both sides of pairs, or returns why one can't be.
func measurePairs(pairs []pair, measure Measurement) (m measurements, why string) {
	for _, p := range pairs {
		a, why := p.measureSide(p.a, measure)
		if why != "" {
			return m, why
		}
		b, why := p.measureSide([]*run.Block{p.b}, measure)
		if why != "" {
			return m, why
		}
		m.a, m.b = append(m.a, a), append(m.b, b)
		m.differences, m.starts = append(m.differences, b-a), append(m.starts, p.b.Start)
	}
	return m, ""
}

// measureSide measures the blocks of a side, and returns their geometric mean.
func (p pair) measureSide(blocks []*run.Block, measure Measurement) (value float64, why string) {
	logs := 0.0
	for _, b := range blocks {
		value, why := p.measureBlock(b, measure)
		if why != "" {
			return 0, why
		}
		logs += math.Log(value)
	}
	return math.Exp(logs / float64(len(blocks))), ""
}

func (p pair) measureBlock(b *run.Block, measure Measurement) (value float64, why string) {
	if n, done := countErrors(b), countAnswered(b); float64(n) > ErrorsCompared*float64(done) {
		return 0, fmt.Sprintf("pair %d has a block with %d errors in %d answers: it would compare failures", p.number, n, done)
	}
	if value, why = measure(b); why != "" {
		return 0, fmt.Sprintf("pair %d has %s", p.number, why)
	}
	return value, ""
}

// measureEffect returns the difference of a measurement over starts, and the log-ratios of pairs.
func measureEffect(pairs []pair, measure Measurement, has, need design) (Effect, []float64) {
	m, why := measurePairs(pairs, measure)
	if why != "" {
		return unmeasured("%s", why), nil
	}
	logs, err := statistics.LogRatios(m.a, m.b)
	if err != nil {
		return unmeasured("%s", err), nil
	}
	if !has.covers(need) {
		return unmeasured("%s; a claim needs %s", has, need), logs
	}
	means := statistics.StartMeans(m.starts, logs)
	change, _ := statistics.MeanInterval(means, level)
	ninety, _ := statistics.MeanInterval(means, 0.9)
	e := Effect{Measured: true, Change: change.Map(math.Expm1), Ninety: ninety.Map(math.Expm1), P: statistics.TTest(means)}
	e.Starts = seq.Map(means, math.Expm1)
	e.Milliseconds, _ = statistics.MeanInterval(statistics.StartMeans(m.starts, m.differences), level)
	e.PHolm = e.P
	return e, logs
}

// judge sets where the effect lies relative to a margin. 0 means no margin.
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

// StartsToDecide returns how many starts would decide what these do not, or 0 if there is nothing to decide.
func (e Effect) StartsToDecide() int {
	if !e.Measured || e.Verdict != statistics.Undecided {
		return 0
	}
	return statistics.StartsToDecide(seq.Map(e.Starts, math.Log1p), e.Margin)
}

// adjust sets the p-values of one family, A/A or all others, for there being several.
func adjust(comparisons []Comparison, aa bool) {
	var effects []*Effect
	var p []float64
	for i := range comparisons {
		c := &comparisons[i]
		for _, q := range c.quantities(Margins{}) {
			if c.AA == aa && q.effect.Measured {
				effects, p = append(effects, q.effect), append(p, q.effect.P)
			}
		}
	}
	for i, adjusted := range statistics.Holm(p) {
		effects[i].PHolm = adjusted
	}
}
