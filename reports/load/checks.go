package load

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// What the measuring itself has to keep.
const (
	// lateLimit is the part of requests that may be sent late. A p99 is about one request in a hundred, so that
	// this must be well below it.
	lateLimit = 0.005
	// droppedLimit is the part of the intended requests that may never be sent.
	droppedLimit = 0.001
	// unansweredLimit is the part of the requests sent that may have no answer at the end of the block: they are
	// the longest, and missing in the latencies.
	unansweredLimit = 0.005
	// displacedLimit is the part of the arrivals that may come in another second than those of the other side of
	// the pair.
	displacedLimit = 0.02
	// alpha is the level of tests of the measuring.
	alpha = 0.05
	// trendLimit is the change of a p50 over the run, as a part, that a trend needs to count: with enough blocks a
	// trend of no importance is significant, too.
	trendLimit = 0.05
)

// checker collects what is wrong with a kind of thing.
type checker struct {
	name    string
	wrong   []string
	unknown []string
	held    string // what to say if nothing is wrong
}

func (c *checker) wrongf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// mostShown is how many faults of a kind are listed.
const mostShown = 5

func (c *checker) result() Check {
	r := Check{Name: c.name, State: Held, Detail: c.held}
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

// checks looks at the measuring.
func checks(r *run.Run, variants []variantBlocks, groups []comparisonPairs, comparisons []Comparison, t Thresholds) []Check {
	all := []Check{
		checkThresholds(t),
		checkExecuted(r),
		checkRun(r),
		checkServers(r),
		checkCounters(r),
		checkGenerator(r),
		checkArrivals(groups),
		checkPairs(groups, t, r.Pairs),
		checkTrends(variants, comparisons),
	}
	if len(groups) > 0 {
		all = append(all, checkAA(comparisons, r.Seed))
	}
	return all
}

func checkThresholds(t Thresholds) Check {
	c := checker{name: "thresholds", held: "the thresholds can be judged"}
	if err := t.Validate(); err != nil {
		c.wrongf("%s", err)
	}
	return c.result()
}

func checkExecuted(r *run.Run) Check {
	c := checker{name: "executed", held: fmt.Sprintf("%d blocks", len(r.Blocks))}
	if len(r.Blocks) == 0 {
		c.wrongf("nothing was executed: the run has no block")
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Sent == 0 || answered(b) == 0 || b.Latency.Count() == 0 {
			c.wrongf("block %d (%s): %d requests sent, %d answered, %d latencies", i, keyOf(b).name(false), b.Sent, answered(b), b.Latency.Count())
		}
	}
	return c.result()
}

func checkRun(r *run.Run) Check {
	c := checker{name: "undisturbed", held: "the run ended by itself and reports no problem"}
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
	return c.result()
}

func checkServers(r *run.Run) Check {
	c := checker{name: "servers", held: "the servers are what was asked for"}
	known := map[string]bool{}
	for _, s := range r.Servers {
		known[s.Name] = true
		for _, m := range s.Mismatches {
			c.wrongf("%s: %s", s.Name, m)
		}
		if s.GitVersion == "" || s.Gate != "on" && s.Gate != "off" {
			c.wrongf("%s: version %q and gate %q were not read back", s.Name, s.GitVersion, s.Gate)
		}
	}
	for _, b := range r.Blocks {
		if !known[b.Server] {
			known[b.Server] = true // said once
			c.wrongf("blocks ran on %q, of which nothing is known", b.Server)
		}
	}
	return c.result()
}

// checkCounters holds the counters of a block against one another, and the recorder's against the API server's.
func checkCounters(r *run.Run) Check {
	c := checker{name: "counters", held: "the counters agree, and recorder and API server with one another"}
	if !slices.ContainsFunc(r.Blocks, func(b run.Block) bool { return len(b.Attempts) > 0 }) {
		c.held = "the counters agree; the API server has none of its own here, so that the recorder's stand alone"
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Planned != b.Sent+b.Dropped {
			c.wrongf("block %d: %d planned, %d sent and %d dropped", i, b.Planned, b.Sent, b.Dropped)
		}
		if done := answered(b); done > b.Sent || b.Latency.Count() > done || b.Late > b.Sent {
			c.wrongf("block %d: %d sent, %d of them late, %d answered, %d latencies", i, b.Sent, b.Late, done, b.Latency.Count())
		}
		// An error may have no latency, an answer has one.
		if without := answered(b) - b.Latency.Count(); without > errorsOf(b) {
			c.wrongf("block %d: %d answers without a latency, and %d errors", i, without, errorsOf(b))
		}
		if negative(b) {
			c.wrongf("block %d: a counter is negative", i)
		}
		for _, u := range b.Unreconciled {
			c.wrongf("block %d: %s", i, u)
		}
	}
	return c.result()
}

func negative(b *run.Block) bool {
	least := min(b.Planned, b.Sent, b.Late, b.Dropped, int64(b.Agents))
	for _, n := range b.Answers {
		least = min(least, n)
	}
	for _, n := range b.Wrong {
		least = min(least, n)
	}
	for _, n := range b.Reviews {
		least = min(least, n.Count)
	}
	return least < 0
}

func checkGenerator(r *run.Run) Check {
	c := checker{name: "generator kept up", held: "nearly all requests were sent in time"}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		late := func(what string, n, of int64, limit float64) {
			// One request is nothing, however short the block.
			if n > 1 && float64(n) > limit*float64(of) {
				c.wrongf("block %d (%s): %d of %d requests were %s, at most %g %% may be", i, keyOf(b).name(false), n, of, what, 100*limit)
			}
		}
		late("sent late", b.Late, b.Sent, lateLimit)
		late("never sent", b.Dropped, b.Planned, droppedLimit)
		late("without an answer at the end", b.Sent-answered(b), b.Sent, unansweredLimit)
	}
	return c.result()
}

// checkArrivals holds the two sides of pairs to have had the same arrivals, second by second.
func checkArrivals(groups []comparisonPairs) Check {
	c := checker{name: "arrivals fit the plan", held: "both sides of each pair had the same arrivals"}
	for _, g := range groups {
		for _, p := range g.pairs {
			if p.a.FollowsServer && p.b.FollowsServer {
				continue // who asks when is for the server to say
			}
			if p.a.Planned != p.b.Planned || p.a.Length != p.b.Length {
				c.wrongf("pair %d of %s: %d requests in %s planned as A, %d in %s as B", p.number, g.key.name,
					p.a.Planned, text(p.a.Length), p.b.Planned, text(p.b.Length))
				continue
			}
			if len(p.a.Timeline) == 0 || len(p.b.Timeline) == 0 {
				c.unknown = append(c.unknown, fmt.Sprintf("pair %d of %s has no timeline", p.number, g.key.name))
				continue
			}
			if d := statistics.Displaced(sentBySecond(p.a), sentBySecond(p.b)); d > displacedLimit {
				c.wrongf("pair %d of %s: %.1f %% of the arrivals came in another second on one side than on the other", p.number, g.key.name, 100*d)
			}
		}
	}
	if len(groups) == 0 {
		c.held = "there is no pair whose sides could differ"
	}
	return c.result()
}

func sentBySecond(b *run.Block) []int64 {
	sent := make([]int64, len(b.Timeline))
	for i, s := range b.Timeline {
		sent[i] = s.Sent
	}
	return sent
}

// checkPairs holds comparisons to have the pairs that a claim needs, and those that were asked for.
func checkPairs(groups []comparisonPairs, t Thresholds, asked int) Check {
	c := checker{name: checkPairsName, held: "there is no comparison"}
	for _, g := range groups {
		c.wrong = append(c.wrong, g.problems...)
		if len(g.pairs) < t.minPairs() && !g.key.aa {
			c.wrongf("%s has %d pairs; a claim needs %d", g.key.name, len(g.pairs), t.minPairs())
		} else if len(g.pairs) < asked && !g.key.aa {
			c.wrongf("%s has %d of the %d pairs that were asked for", g.key.name, len(g.pairs), asked)
		} else if !g.key.aa {
			c.held = fmt.Sprintf("each comparison has %d pairs or more", t.minPairs())
		}
	}
	return c.result()
}

// checkTrends looks for a p50 that rises or falls over the run, in a variant or in a comparison.
func checkTrends(variants []variantBlocks, comparisons []Comparison) Check {
	c := checker{name: "no trend"}
	var names []string
	var p, changes []float64
	add := func(name string, values []float64) {
		x, change := statistics.Trend(values)
		names, p, changes = append(names, name), append(p, x), append(changes, math.Expm1(math.Abs(change)))
	}
	for _, variant := range variants {
		var values []float64
		for _, b := range variant.blocks {
			if v := milliseconds(b.Latency.Quantile(0.5)); v > 0 {
				values = append(values, math.Log(v))
			}
		}
		add("p50 of "+variant.name, values)
	}
	for i := range comparisons {
		add("difference of "+comparisons[i].Name, comparisons[i].logP50)
	}
	for i, adjusted := range statistics.Holm(p) {
		if adjusted <= alpha && changes[i] > trendLimit {
			c.wrongf("%s changes by %.0f %% over the run (p %.3g)", names[i], 100*changes[i], adjusted)
		}
	}
	c.held = fmt.Sprintf("no p50 changes by more than %g %% over the run, or not more than chance makes it", 100*trendLimit)
	return c.result()
}

// checkAA looks at the pairs whose two sides are the same. They differ if the harness does.
func checkAA(comparisons []Comparison, seed int64) Check {
	c := checker{name: "A/A"}
	var names []string
	var p []float64
	for i := range comparisons {
		cmp := &comparisons[i]
		if !cmp.AA {
			continue
		}
		for _, q := range []struct {
			name string
			of   func(*Comparison) []float64
		}{
			{"p50", func(c *Comparison) []float64 { return c.logP50 }},
			{"p99", func(c *Comparison) []float64 { return c.logP99 }},
		} {
			residuals, degrees := spread(comparisons, q.of)
			x := q.of(cmp)
			value, ok := statistics.AA(x, residuals, degrees, seedOf(seed, cmp.Name+" A/A "+q.name))
			if ok {
				names = append(names, fmt.Sprintf("%s of %s differs by %+.1f %%", q.name, cmp.Name, 100*math.Expm1(statistics.Mean(x))))
				p = append(p, value)
			} else if q.name == "p50" {
				c.unknown = append(c.unknown, fmt.Sprintf("%s cannot be judged: %d usable pairs, and too few others to hold them against", cmp.Name, len(x)))
			}
		}
	}
	for i, adjusted := range statistics.Holm(p) {
		if adjusted <= alpha {
			c.wrongf("%s (p %.3g), though both sides are the same", names[i], adjusted)
		}
	}
	if len(p) == 0 && len(c.unknown) == 0 {
		c.unknown = append(c.unknown, "the run has no A/A pair: what the harness itself makes of two equal sides is not known")
	}
	c.held = "two sides that are the same do not differ"
	return c.result()
}

// checkPairsName is the name of the check that there are enough pairs.
const checkPairsName = "enough pairs"
