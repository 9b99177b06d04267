package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/scenarios"
)

// CheckName names a check of the measuring.
type CheckName string

// These are the checks of the measuring.
const (
	ThresholdsValid CheckName = "thresholds"
	Executed        CheckName = "executed"
	Undisturbed     CheckName = "undisturbed"
	Servers         CheckName = "servers"
	Counters        CheckName = "counters"
	GeneratorKeptUp CheckName = "generator kept up"
	Arrivals        CheckName = "arrivals fit the plan"
	Starts          CheckName = "starts of the servers"
	EnoughPairs     CheckName = "enough pairs"
	NoTrend         CheckName = "no trend"
	SameServers     CheckName = "A/A"
)

// CheckNames returns the checks in their order. SameServers is made only where something is said of a difference.
func CheckNames() []CheckName {
	return []CheckName{
		ThresholdsValid,
		Executed,
		Undisturbed,
		Servers,
		Counters,
		GeneratorKeptUp,
		Arrivals,
		Starts,
		EnoughPairs,
		NoTrend,
		SameServers,
	}
}

// These are limits that the measuring itself has to keep.
const (
	// lateLimit is the part of requests that may be sent late. It is far below the one in a hundred that a p99 is
	// about.
	lateLimit    = 0.005
	droppedLimit = 0.001 // the part of the intended requests that may be dropped
	// unansweredLimit is the part of requests that may be open at the end of a block. They are the longest, and are
	// missing in the latencies.
	unansweredLimit = 0.005
	// displacedLimit is the part of arrivals that may come in another second than on the other side of the pair.
	displacedLimit = 0.02
	alpha          = statistics.Alpha // the level of tests of the measuring
	// trendLimit is the part by which a p50 has to change over a run, because with enough blocks any trend is
	// significant.
	trendLimit = 0.05
)

// checker collects what is wrong with the measuring, and what cannot be said.
type checker struct {
	wrong   []string
	unknown []string
	sound   string // the text if nothing is wrong
}

func (c *checker) wrongf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *checker) unknownf(format string, args ...any) {
	c.unknown = append(c.unknown, fmt.Sprintf(format, args...))
}

const mostShown = 5

func (c *checker) result(name CheckName) Check {
	r := Check{Name: name, State: Holds, Detail: c.sound}
	faults := c.wrong
	if len(faults) > 0 {
		r.State = Broken
	} else if len(c.unknown) > 0 {
		r.State, faults = Unknown, c.unknown
	}
	if more := len(faults) - mostShown; more > 0 {
		faults = append(slices.Clone(faults[:mostShown]), fmt.Sprintf("and %d more", more))
	}
	if len(faults) > 0 {
		r.Detail = strings.Join(faults, "; ")
	}
	return r
}

// check adds a check. look finds what is wrong or unknown. sound is the text if nothing is, unless look returns a
// better one.
func check(name CheckName, sound string, look func(c *checker)) Check {
	c := checker{sound: sound}
	look(&c)
	return c.result(name)
}

func makeChecks(r *run.Run, variants []VariantBlocks, groups []comparisonPairs, comparisons []Comparison, t Thresholds) []Check {
	declared := t.declareMargins() && len(groups) > 0
	isClaimed := declared || slices.ContainsFunc(comparisons, Comparison.claims)
	aboutTime := isClaimed || t.limitLatency()
	all := []Check{
		check(ThresholdsValid, "the thresholds can be judged", func(c *checker) {
			if err := t.Validate(); err != nil {
				c.wrongf("%s", err)
			}
		}),
		check(Executed, fmt.Sprintf("%d blocks", len(r.Blocks)), func(c *checker) { c.checkExecuted(r) }),
		check(Undisturbed, "the run ended by itself and reports no problem", func(c *checker) { c.checkUndisturbed(r) }),
		check(Servers, "the servers are what was asked for", func(c *checker) { c.checkServers(r) }),
		check(Counters, "the counters agree, and recorder and API server with one another", func(c *checker) { c.checkCounters(r) }),
		check(GeneratorKeptUp, "nearly all requests were sent in time", func(c *checker) { c.checkGenerator(r, aboutTime) }),
		check(Arrivals, "both sides of each pair had the same arrivals", func(c *checker) { c.checkArrivals(groups, aboutTime) }),
		check(Starts, "", func(c *checker) { c.checkStarts(r) }),
		check(EnoughPairs, "there is no comparison", func(c *checker) { c.checkPairs(groups, t, design{r.Pairs, r.Starts}) }),
		check(NoTrend, fmt.Sprintf("no p50 changes by more than %g %% over the run, or not more than chance makes it", 100*trendLimit),
			func(c *checker) { c.checkTrends(variants, comparisons, aboutTime) }),
	}
	if isClaimed {
		all = append(all, check(SameServers, "", func(c *checker) { c.checkSame(comparisons) }))
	}
	return all
}

func (c *checker) checkExecuted(r *run.Run) {
	if len(r.Blocks) == 0 {
		c.wrongf("nothing was executed: the run has no block")
	}
	for i := range r.Blocks {
		if b := &r.Blocks[i]; b.Sent == 0 || countAnswered(b) == 0 || b.Latency.Count() == 0 {
			c.wrongf("block %d (%s): %d requests sent, %d answered, %d latencies", i, KeyOf(b), b.Sent, countAnswered(b), b.Latency.Count())
		}
	}
}

func (c *checker) checkUndisturbed(r *run.Run) {
	if r.Interrupted {
		c.wrongf("the run was interrupted: what is here is partial")
	}
	for _, p := range r.Problems {
		if p.Block >= 0 {
			c.wrongf("block %d: %s", p.Block, p.Text)
		} else {
			c.wrongf("%s", p.Text)
		}
	}
}

func (c *checker) checkServers(r *run.Run) {
	known := map[string]bool{}
	for _, s := range r.Servers {
		known[s.Name] = true
		for _, m := range s.Mismatches {
			c.wrongf("%s: %s", s.Name, m)
		}
		isGateKnown := s.Gate == scenarios.GateOn || s.Gate == scenarios.GateOff
		if s.GitVersion == "" || !isGateKnown {
			c.wrongf("%s: version %q and gate %q were not read back", s.Name, s.GitVersion, s.Gate)
		}
	}
	for _, b := range r.Blocks {
		if !known[b.Server] {
			known[b.Server] = true // said once
			c.wrongf("blocks ran on %q, a server that the run does not list", b.Server)
		}
	}
}

// checkGenerator finds requests that were not sent, or not in time. In a run that is not about time, a late request is
// as good as another, because what is predicted follows from when it was sent.
func (c *checker) checkGenerator(r *run.Run, aboutTime bool) {
	var late, sent int64
	for i := range r.Blocks {
		b := &r.Blocks[i]
		limitPart := func(what string, n, all int64, limit float64) {
			// One request does not count, however short the block is.
			if n > 1 && float64(n) > limit*float64(all) {
				c.wrongf("block %d (%s): %d of %d requests were %s, at most %g %% may be", i, KeyOf(b), n, all, what, 100*limit)
			}
		}
		late, sent = late+b.Late, sent+b.Sent
		if aboutTime {
			limitPart("sent late", b.Late, b.Sent, lateLimit)
		}
		limitPart("never sent", b.Dropped, b.Planned, droppedLimit)
		limitPart("without an answer at the end", b.Sent-countAnswered(b), b.Sent, unansweredLimit)
	}
	if !aboutTime {
		c.sound = fmt.Sprintf(
			"nearly all requests were sent, %d of %d late, which makes no difference: nothing is said of latency",
			late,
			sent,
		)
	}
}

// checkArrivals compares the arrivals on the two sides of pairs, and in a run that is about time second by second.
func (c *checker) checkArrivals(groups []comparisonPairs, aboutTime bool) {
	if len(groups) == 0 {
		c.sound = "there is no pair whose sides could differ"
	}
	for _, g := range groups {
		for _, p := range g.pairs {
			c.checkPairArrivals(g.key.name, p, aboutTime)
		}
	}
}

func (c *checker) checkPairArrivals(comparison string, p pair, aboutTime bool) {
	for _, a := range p.a {
		c.compareArrivals(fmt.Sprintf("pair %d of %s", p.number, comparison), a, p.b, aboutTime)
	}
}

// compareArrivals compares when requests came in two blocks of a pair, which name names.
func (c *checker) compareArrivals(name string, a, b *run.Block, aboutTime bool) {
	switch {
	case a.FollowsServer && b.FollowsServer:
		// The server decides when agents ask.
	case a.Planned != b.Planned || a.Length != b.Length:
		c.wrongf(
			"%s: %d requests in %s planned as A, %d in %s as B",
			name,
			a.Planned,
			describeDuration(a.Length),
			b.Planned,
			describeDuration(b.Length),
		)
	case !aboutTime:
		// There are as many requests. In which second one was late changes what is predicted for it, but not a figure.
	case len(a.Timeline) == 0 || len(b.Timeline) == 0:
		c.unknownf("%s has no timeline", name)
	default:
		if d := statistics.Displaced(countSends(a), countSends(b)); d > displacedLimit {
			c.wrongf("%s: %.1f %% of the arrivals came in another second on one side than on the other", name, 100*d)
		}
	}
}

// countSends returns the requests sent in each second of a block.
func countSends(b *run.Block) []int64 {
	return seq.Map(b.Timeline, func(s run.Second) int64 { return s.Sent })
}

// checkStarts finds starts of the servers that were not real: a process belongs to two starts.
func (c *checker) checkStarts(r *run.Run) {
	type process struct {
		server string
		began  int64
	}
	startOf, starts := map[process]int{}, map[int]bool{}
	for i, b := range r.Blocks {
		p := process{b.Server, b.ServerStarted.UnixNano()}
		before, known := startOf[p]
		switch {
		case b.ServerStarted.IsZero() && !known:
			c.unknownf("%s does not say since when it runs", b.Server)
		case b.ServerStarted.IsZero() || !known:
		case before != b.Start:
			c.wrongf("block %d: %s is the same process in the starts %d and %d", i, b.Server, before, b.Start)
		}
		startOf[p], starts[b.Start] = b.Start, true
	}
	if c.sound = "each server was started once"; len(starts) > 1 {
		c.sound = fmt.Sprintf("each server was started %d times, and no process is of two starts", len(starts))
	} else {
		c.unknown = nil // it makes no difference
	}
}

// checkPairs compares the pairs and starts of comparisons with those that were declared and requested, and with those
// that are needed where a claim is made.
func (c *checker) checkPairs(groups []comparisonPairs, t Thresholds, requestedDesign design) {
	tests := testsEach * seq.Count(groups, func(g comparisonPairs) bool { return !g.key.aa })
	least := t.declared()
	if t.declareMargins() {
		least = t.neededForClaim(tests)
	}
	for _, g := range groups {
		c.wrong = append(c.wrong, g.problems...)
		if g.key.aa {
			continue // its own check reports that
		}
		if has := g.design(); !has.covers(least) {
			c.unknownf("%s has %s; it needs %s", g.key.name, has, least)
		} else if !has.covers(requestedDesign) {
			c.wrongf("%s has %s, and %s were asked for", g.key.name, has, requestedDesign)
		}
		c.sound = fmt.Sprintf("each comparison has %s or more", least)
	}
}

// checkTrends looks for a p50 that rises or falls over the run, in a variant or in a comparison, if the run is about
// time.
func (c *checker) checkTrends(variants []VariantBlocks, comparisons []Comparison, aboutTime bool) {
	if !aboutTime {
		c.sound = "nothing is said of latency"
		return
	}
	var names []string
	var p, changes []float64
	add := func(name string, values []float64) {
		x, change := statistics.Trend(values)
		names, p, changes = append(names, name), append(p, x), append(changes, math.Expm1(math.Abs(change)))
	}
	for _, variant := range variants {
		var values []float64
		for _, b := range variant.Blocks {
			if v := milliseconds(b.Latency.Quantile(0.5)); v > 0 {
				values = append(values, math.Log(v))
			}
		}
		add("p50 of "+variant.Name, values)
	}
	for i := range comparisons {
		add("difference of "+comparisons[i].Name, comparisons[i].logP50)
	}
	for i, adjusted := range statistics.Holm(p) {
		if adjusted <= alpha && changes[i] > trendLimit {
			c.wrongf("%s changes by %.0f %% over the run (p %.3g)", names[i], 100*changes[i], adjusted)
		}
	}
}

// claims reports whether something is said of a difference between the sides.
func (c Comparison) claims() bool {
	return c.Measured() && !c.AA
}

// checkSame judges comparisons of equal servers. They differ if the harness does, or if the order of starting them
// matters. They have to be equivalent, because a difference that is not significant may still be one.
func (c *checker) checkSame(comparisons []Comparison) {
	var seen []string
	for i := range comparisons {
		comparison := &comparisons[i]
		switch {
		case !comparison.AA:
		case comparison.oneProcess:
			c.unknownf("%s has one process on both sides: what two processes differ by is not known", comparison.Name)
		default:
			seen = append(seen, c.checkSameEffect("p50 of "+comparison.Name, comparison.P50)...)
			seen = append(seen, c.checkSameEffect("p99 of "+comparison.Name, comparison.P99)...)
			seen = append(seen, c.checkSameEffect("CPU of "+comparison.Name, comparison.CPU)...)
		}
	}
	if len(seen) == 0 && len(c.unknown) == 0 {
		c.unknownf("the run has no A/A pair: what two servers that are the same differ by is not known")
	}
	c.sound = "two servers that are the same are equivalent: " + strings.Join(seen, "; ")
}

// checkSameEffect judges one effect between equal servers, and returns its text, or "" if it has no margin.
func (c *checker) checkSameEffect(name string, e Effect) []string {
	text := fmt.Sprintf("%s: %s", name, e)
	switch e.Verdict {
	case "":
		return nil
	case statistics.Above, statistics.Below:
		c.wrongf("%s, though both sides are the same", text)
	case statistics.Undecided:
		c.unknownf("%s", text)
	}
	return []string{text}
}

// Rejudge judges a published result by the present rules: no difference in time between priority levels, A/A by
// equivalence, and all tests of the comparisons as one family.
func (r *Result) Rejudge() {
	r.SeparateLevels()
	for i := range r.Comparisons {
		if c := &r.Comparisons[i]; c.AA {
			for _, q := range c.quantities(r.Thresholds.sameMargins(c.Name)) {
				q.effect.judge(q.margin)
			}
		}
	}
	adjust(r.Comparisons, true)
	adjust(r.Comparisons, false)
	if i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == SameServers }); i >= 0 {
		r.Checks[i] = check(SameServers, "", func(c *checker) { c.checkSame(r.Comparisons) })
	}
}
