package load

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// What the measuring itself has to keep.
const (
	// lateLimit is the part of requests that may be sent late, well below the one in a hundred that a p99 is about.
	lateLimit    = 0.005
	droppedLimit = 0.001 // the part of the intended requests that may never be sent
	// unansweredLimit is the part of requests that may be open at a block's end: the longest, which the latencies lack.
	unansweredLimit = 0.005
	// displacedLimit is the part of arrivals that may come in another second than the other side of the pair's.
	displacedLimit = 0.02
	alpha          = statistics.Alpha // the level of tests of the measuring
	// trendLimit is the part by which a p50 has to change over a run: with enough blocks any trend is significant.
	trendLimit = 0.05
)

type checker struct {
	name    string
	wrong   []string
	unknown []string
	held    string // what to say if nothing is wrong
}

func (c *checker) wrongf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

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

// check makes one: look finds what is wrong or unknown. held is what to say otherwise, unless look says it better.
func check(name, held string, look func(c *checker)) Check {
	c := checker{name: name, held: held}
	look(&c)
	return c.result()
}

func checks(r *run.Run, variants []variantBlocks, groups []comparisonPairs, comparisons []Comparison, t Thresholds) []Check {
	all := []Check{
		check("thresholds", "the thresholds can be judged", func(c *checker) {
			if err := t.Validate(); err != nil {
				c.wrongf("%s", err)
			}
		}),
		check("executed", fmt.Sprintf("%d blocks", len(r.Blocks)), func(c *checker) { c.executed(r) }),
		check("undisturbed", "the run ended by itself and reports no problem", func(c *checker) { c.undisturbed(r) }),
		check("servers", "the servers are what was asked for", func(c *checker) { c.servers(r) }),
		check("counters", "the counters agree, and recorder and API server with one another", func(c *checker) { c.counters(r) }),
		check("generator kept up", "nearly all requests were sent in time", func(c *checker) { c.generator(r) }),
		checkArrivals(groups),
		check("starts of the servers", "", func(c *checker) { c.starts(r) }),
		checkPairs(groups, t, design{r.Pairs, r.Starts}),
		check("no trend", fmt.Sprintf("no p50 changes by more than %g %% over the run, or not more than chance makes it", 100*trendLimit),
			func(c *checker) { c.trends(variants, comparisons) }),
	}
	if t.declareMargins() && len(groups) > 0 || slices.ContainsFunc(comparisons, claims) {
		all = append(all, check("A/A", "", func(c *checker) { c.same(comparisons) }))
	}
	return all
}

func (c *checker) executed(r *run.Run) {
	if len(r.Blocks) == 0 {
		c.wrongf("nothing was executed: the run has no block")
	}
	for i := range r.Blocks {
		if b := &r.Blocks[i]; b.Sent == 0 || answered(b) == 0 || b.Latency.Count() == 0 {
			c.wrongf("block %d (%s): %d requests sent, %d answered, %d latencies", i, keyOf(b), b.Sent, answered(b), b.Latency.Count())
		}
	}
}

func (c *checker) undisturbed(r *run.Run) {
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

func (c *checker) servers(r *run.Run) {
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
}

// counters holds the counters of a block against one another, and the recorder's against the API server's.
func (c *checker) counters(r *run.Run) {
	if !slices.ContainsFunc(r.Blocks, func(b run.Block) bool { return len(b.Attempts) > 0 }) {
		c.held = "the counters agree; the API server has none of its own here, so that the recorder's stand alone"
	}
	kinds := slices.ContainsFunc(r.Blocks, func(b run.Block) bool { return len(b.Kinds) > 0 })
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
		for _, text := range contradictions(b, kinds) {
			c.wrongf("block %d: %s", i, text)
		}
		if negative(b) {
			c.wrongf("block %d: a counter is negative", i)
		}
		for _, u := range b.Unreconciled {
			c.wrongf("block %d: %s", i, u)
		}
	}
}

func negative(b *run.Block) bool {
	counts := []int64{b.Planned, b.Sent, b.Late, b.Dropped, int64(b.Agents)}
	counts = slices.AppendSeq(slices.AppendSeq(counts, maps.Values(b.Answers)), maps.Values(b.Wrong))
	counts = append(counts, seq.Map(b.Reviews, func(n run.ReviewCount) int64 { return n.Count })...)
	return slices.Min(counts) < 0
}

func (c *checker) generator(r *run.Run) {
	for i := range r.Blocks {
		b := &r.Blocks[i]
		late := func(what string, n, of int64, limit float64) {
			// One request is nothing, however short the block.
			if n > 1 && float64(n) > limit*float64(of) {
				c.wrongf("block %d (%s): %d of %d requests were %s, at most %g %% may be", i, keyOf(b), n, of, what, 100*limit)
			}
		}
		late("sent late", b.Late, b.Sent, lateLimit)
		late("never sent", b.Dropped, b.Planned, droppedLimit)
		late("without an answer at the end", b.Sent-answered(b), b.Sent, unansweredLimit)
	}
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
	return seq.Map(b.Timeline, func(s run.Second) int64 { return s.Sent })
}

// starts holds the starts of the servers to have been some: no process is of two.
func (c *checker) starts(r *run.Run) {
	type process struct {
		server string
		began  int64
	}
	startOf, starts := map[process]int{}, map[int]bool{}
	for i, b := range r.Blocks {
		is := process{b.Server, b.ServerStarted.UnixNano()}
		before, known := startOf[is]
		switch {
		case b.ServerStarted.IsZero() && !known:
			c.unknown = append(c.unknown, fmt.Sprintf("%s does not say since when it runs", b.Server))
		case known && before != b.Start && !b.ServerStarted.IsZero():
			c.wrongf("block %d: %s is the same process in the starts %d and %d", i, b.Server, before, b.Start)
		}
		startOf[is], starts[b.Start] = b.Start, true
	}
	if c.held = "each server was started once"; len(starts) > 1 {
		c.held = fmt.Sprintf("each server was started %d times, and no process is of two starts", len(starts))
	} else {
		c.unknown = nil // it makes no difference
	}
}

// checkPairs holds comparisons to the pairs and starts that were declared, asked for, and needed where a claim is made.
func checkPairs(groups []comparisonPairs, t Thresholds, asked design) Check {
	c := checker{name: checkPairsName, held: "there is no comparison"}
	tests := 2 * seq.Count(groups, func(g comparisonPairs) bool { return !g.key.aa })
	least := t.declared()
	if t.declareMargins() {
		least = t.forClaim(tests)
	}
	for _, g := range groups {
		c.wrong = append(c.wrong, g.problems...)
		if has := g.design(); g.key.aa {
			continue // its own check says so
		} else if !has.covers(least) {
			c.unknown = append(c.unknown, fmt.Sprintf("%s has %s; it needs %s", g.key.name, has, least))
		} else if !has.covers(asked) {
			c.wrongf("%s has %s, and %s were asked for", g.key.name, has, asked)
		}
		c.held = fmt.Sprintf("each comparison has %s or more", least)
	}
	return c.result()
}

// trends looks for a p50 that rises or falls over the run, in a variant or in a comparison.
func (c *checker) trends(variants []variantBlocks, comparisons []Comparison) {
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
}

func claims(c Comparison) bool { return !c.AA && (c.P50.Measured || c.P99.Measured) }

// same looks at comparisons of equal servers, which differ if the harness does, or the order of starting them matters.
func (c *checker) same(comparisons []Comparison) {
	var seen []string
	for i := range comparisons {
		cmp := &comparisons[i]
		switch {
		case !cmp.AA:
			continue
		case cmp.oneProcess:
			c.unknown = append(c.unknown, fmt.Sprintf("%s has one process on both sides: what two processes differ by is not known", cmp.Name))
			continue
		}
		for _, e := range []namedEffect{{"p50", cmp.P50}, {"p99", cmp.P99}} {
			said := fmt.Sprintf("%s of %s: %s", e.Name, cmp.Name, e.Effect)
			switch {
			case !e.Measured:
				c.unknown = append(c.unknown, said)
			case e.PHolm <= alpha || e.Verdict == statistics.Above || e.Verdict == statistics.Below:
				c.wrong = append(c.wrong, said+", though both sides are the same")
			case e.Verdict == statistics.Undecided:
				c.unknown = append(c.unknown, said)
			}
			seen = append(seen, said)
		}
	}
	if len(seen) == 0 && len(c.unknown) == 0 {
		c.unknown = append(c.unknown, "the run has no A/A pair: what two servers that are the same differ by is not known")
	}
	c.held = "no difference was found between two servers that are the same: " + strings.Join(seen, "; ")
}

const checkPairsName = "enough pairs"
