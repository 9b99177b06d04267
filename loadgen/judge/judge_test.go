package judge

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

func TestSoundRunPasses(t *testing.T) {
	r := simulated.Sound().Run()
	result := Judge(r, allOf())
	if result.Outcome != Passed || len(result.Reasons) != 0 {
		t.Fatal(reasonsText(result))
	}
	c := result.Comparisons[0]
	if c.Pairs != 20 || c.P50.Verdict != statistics.Equivalent || c.A != "legacy on gate-off" || c.B != "associated-node on gate-on" ||
		c.ReviewsA != 2 {
		t.Errorf("%+v", c)
	}
	for _, a := range result.Variants {
		if a.Reviews.Verdict != AsPredicted || a.Rate != 40 || a.Usage[run.APIServer].PerRequest != 2 || !a.P99.Bounded {
			t.Errorf("%+v", a)
		}
	}
	again := Judge(r, allOf())
	if diff := cmp.Diff(result, again, cmpopts.IgnoreUnexported(Comparison{})); diff != "" {
		t.Errorf("judged again it differs: %s", diff)
	}
}

// TestEachComparisonHasItsOwnFigures checks that neither the order of blocks of different pairs nor that of map keys
// matters.
func TestEachComparisonHasItsOwnFigures(t *testing.T) {
	s := simulated.Sound()
	r := s.Run()
	alone := r
	alone.Blocks = slices.DeleteFunc(slices.Clone(r.Blocks), func(b run.Block) bool { return b.Uses[0].AA })
	with, without := Judge(r, allOf()).Comparisons[0], Judge(alone, allOf()).Comparisons[0]
	if !cmp.Equal(with.P50, without.P50) || !cmp.Equal(with.P99, without.P99) {
		t.Errorf("the A/A pairs change another comparison: %+v, %+v", with.P50, without.P50)
	}
}

// TestInconclusive checks that, whatever is wrong with the measuring, the run is inconclusive and says why.
func TestInconclusive(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*run.Run)
		why   string
	}{
		{"no blocks", func(r *run.Run) { r.Blocks = nil }, "nothing was executed"},
		{"an empty block", func(r *run.Run) {
			r.Blocks[3] = run.Block{Pair: 0, Uses: []run.Use{{Comparison: "gate", Role: "A"}}, Server: "gate-on"}
		}, "0 requests sent"},
		{"no latencies", func(r *run.Run) { r.Blocks[3].Latency = histogram.Histogram{} }, "0 latencies"},
		{"interrupted", func(r *run.Run) { r.Interrupted = true }, "was interrupted"},
		{"a problem", func(r *run.Run) { r.Problems = []run.Problem{{Block: 3, Text: "the server died"}} }, "block 3: the server died"},
		{"a problem of the run", func(r *run.Run) { r.Problems = []run.Problem{{Block: -1, Text: "shard 2 was lost"}} }, "shard 2 was lost"},
		{"another server", func(r *run.Run) { r.Servers[1].Mismatches = []string{"gate is off, asked for on"} }, "gate is off, asked for on"},
		{"a server not read back", func(r *run.Run) { r.Servers[1].Gate = "" }, "were not read back"},
		{"an unknown server", func(r *run.Run) { r.Servers = r.Servers[:1] }, "a server that the run does not list"},
		{"unreconciled", func(r *run.Run) { r.Blocks[5].Unreconciled = []string{"recorder 10, metrics 12"} }, "recorder 10, metrics 12"},
		{"late", func(r *run.Run) { r.Blocks[2].Late = 3 }, "3 of 400 requests were sent late"},
		{"dropped", func(r *run.Run) { r.Blocks[2].Dropped = 2; r.Blocks[2].Planned += 2 }, "2 of 402 requests were never sent"},
		{"unanswered", func(r *run.Run) {
			for i := range 4 {
				r.Blocks[i].Sent, r.Blocks[i].Planned = 410, 410 // of both sides of two pairs
			}
		}, "10 of 410 requests were without an answer"},
		{"counters", func(r *run.Run) { r.Blocks[2].Planned = 500 }, "500 planned, 400 sent and 0 dropped"},
		{"more answers than requests", func(r *run.Run) { r.Blocks[2].Answers["200"] = 401 }, "400 sent, 0 of them late, 401 answered"},
		{"answers without latencies", func(r *run.Run) {
			r.Blocks[2].Latency = histogram.Histogram{}
			r.Blocks[2].Latency.RecordN(4*time.Millisecond, 390)
		}, "10 answers without a latency, and 0 errors"},
		{"a negative counter", func(r *run.Run) { r.Blocks[2].Reviews[0].Count = -5 }, "a counter is negative"},
		{"other arrivals", func(r *run.Run) { r.Blocks[0].Timeline[2].Sent, r.Blocks[0].Timeline[3].Sent = 0, 80 }, "10.0 % of the arrivals"},
		{"another plan", func(r *run.Run) { r.Blocks[0].Planned, r.Blocks[0].Sent = 399, 399; r.Blocks[0].Answers["200"] = 399 }, "399 requests in 10s planned as A, 400"},
		{"no timeline", func(r *run.Run) { r.Blocks[0].Timeline = nil }, "has no timeline"},
		{"a lost side", func(r *run.Run) { r.Blocks = r.Blocks[1:] }, "expected one of each"},
		{"a side twice", func(r *run.Run) { r.Blocks = append(r.Blocks, r.Blocks[0]) }, "has 2 blocks as A"},
		{"another variant in a pair", func(r *run.Run) { r.Blocks[0].Variant = "other" }, "compares other variants or servers"},
		{"A/A of two things", func(r *run.Run) { r.Blocks[2].Variant = "other" }, "is called A/A and compares"},
		{"too few pairs", func(r *run.Run) {
			r.Blocks = slices.DeleteFunc(r.Blocks, func(b run.Block) bool { return b.Pair > 9 })
		}, "gate has 10 pairs in 3 starts; it needs 20 pairs in 5 starts"},
		{"fewer pairs than asked for", func(r *run.Run) { r.Pairs = 21 }, "gate has 20 pairs in 5 starts, and 21 pairs in 5 starts were asked for"},
		{"no A/A", func(r *run.Run) {
			r.Blocks = slices.DeleteFunc(r.Blocks, func(b run.Block) bool { return b.Uses[0].AA })
		}, "has no A/A pair"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := simulated.Sound().Run()
			c.spoil(&r)
			result := Judge(r, allOf())
			if result.Outcome != Inconclusive || !strings.Contains(strings.Join(result.Reasons, "\n"), c.why) {
				t.Errorf("want inconclusive, %q; got %s", c.why, reasonsText(result))
			}
		})
	}
}

// TestComparisonThatNeverRan checks that a comparison of the profile that never ran is reported.
func TestComparisonThatNeverRan(t *testing.T) {
	thresholds := allOf()
	thresholds.Comparisons = map[string]Margins{"gate": {P50: 0.05}, "same": {}, "arbitrary": {P50: 0.1}, "warm": {}}
	result := Judge(simulated.Sound().Run(), thresholds)
	const want = "comparison: not judged: the profile has the comparison, and no block of it ran"
	text := reasonsText(result)
	if result.Outcome != Inconclusive || !strings.Contains(text, "arbitrary: "+want) || !strings.Contains(text, "warm: "+want) || strings.Contains(text, "gate: "+want) ||
		strings.Contains(text, "same: "+want) {
		t.Error(text)
	}
}

// TestClocks checks that the comparison of the shards' clocks is reported.
func TestClocks(t *testing.T) {
	r := simulated.Sound().Run()
	r.Clocks = []run.Clock{
		{Shard: "shard 0 of 2", Offset: run.Duration(-300 * time.Microsecond), Uncertainty: run.Duration(time.Millisecond)},
		{Shard: "shard 1 of 2"},
	}
	const want = "the clocks of 2 shards were compared with the coordinator's: the largest offset is -300µs ± 1ms (shard 0 of 2)"
	if result := Judge(r, allOf()); !slices.Contains(result.Notes, want) {
		t.Errorf("notes: %q", result.Notes)
	}
}

func TestAADiffersAndTrends(t *testing.T) {
	for _, c := range []struct {
		name   string
		pairs  int
		effect float64
		margin float64 // declared for A/A
		want   string
	}{
		{"it differs, at the fewest pairs", 7, 0.2, 0, "A/A: p50 of same: +2"},
		{"too few pairs to say", 6, 0.5, 0, "A/A: p50 of same: unknown (6 pairs in 5 starts; a claim needs 7 pairs in 5 starts)"},
		{"the same", 7, 0, 0, ""},
		{"the same, within the margin", 20, 0, 0.1, ""},
		{"the same, and not shown to be within the margin", 20, 0, 0.001, "A/A: p50 of same: "},
	} {
		s := simulated.Sound()
		s.AAPairs, s.AAEffect = c.pairs, c.effect
		thresholds := allOf()
		thresholds.MinPairs, thresholds.Comparisons = 1, map[string]Margins{"gate": {P50: 0.1}, "same": {P50: c.margin}}
		result := Judge(s.Run(), thresholds)
		if c.want == "" && result.Outcome != Passed ||
			c.want != "" &&
				(result.Outcome != Inconclusive || !strings.Contains(reasonsText(result), c.want)) {
			t.Errorf("%s: %s", c.name, reasonsText(result))
		}
	}
	inOne := simulated.Sound().Run()
	for i := range inOne.Blocks {
		if inOne.Blocks[i].Uses[0].AA {
			inOne.Blocks[i].Server = "gate-off"
		}
	}
	result := Judge(inOne, allOf())
	if result.Outcome != Inconclusive ||
		!strings.Contains(reasonsText(result), "same has one process on both sides") {
		t.Error(reasonsText(result))
	}
	// A server that becomes slower with each block.
	r := simulated.Sound().Run()
	for i := range r.Blocks {
		slower := histogram.Histogram{}
		r.Blocks[i].Latency.Each(func(bucket int, n int64) {
			from, _ := histogram.Bounds(bucket)
			slower.RecordN(from+from*time.Duration(i)/30, n)
		})
		r.Blocks[i].Latency = slower
	}
	if result := Judge(r, allOf()); result.Outcome != Inconclusive || !strings.Contains(reasonsText(result), "no trend: p50 of ") {
		t.Error(reasonsText(result))
	}
}

// TestLimits checks that each limit can hold, be broken, and be unknown.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name    string
		t       Thresholds
		spoil   func(*run.Run)
		outcome Outcome
		why     string
	}{
		{"reviews held", Thresholds{Limits: Limits{ReviewsPerRequest: 2}}, nil, Passed, ""},
		{"reviews broken", Thresholds{Limits: Limits{ReviewsPerRequest: 1.99}}, nil, Failed, "legacy on gate-off: reviewsPerRequest: 2.000 [2.000, 2.000] reviews per request, at most 1.99"},
		{"no reviews", Thresholds{Limits: Limits{ReviewsPerRequest: 2}}, func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Reviews, r.Blocks[i].Predicted = nil, nil
			}
		}, Inconclusive, "the recorder received no review at all"},
		{"errors compared", Thresholds{Margin: 0.05}, func(r *run.Run) {
			r.Blocks[0].Answers = map[string]int64{"200": 390, "500": 10}
		}, Inconclusive, "it would compare failures"},
		{"reviews of one variant", Thresholds{Limits: Limits{ReviewsPerRequest: 1.2}, Variants: map[string]Limits{"legacy": {ReviewsPerRequest: 2}}}, nil, Passed, ""},
		{"a variant that did not run", Thresholds{Variants: map[string]Limits{"denied": {ReviewsPerRequest: 2}}}, nil, Inconclusive, "it did not run"},
		{"reviews not as predicted", Thresholds{}, func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Predicted.Checks[0].Low++
			}
		}, Failed, "legacy on gate-off: predicted reviews: block 1 of 40: request list Allow: 400 reviews, predicted 401 to 400"},
		// One of 20 blocks is enough, whatever the mean is, and the few requests that show it are named.
		{"reviews of one block not as predicted", Thresholds{}, func(r *run.Run) {
			b := &r.Blocks[len(r.Blocks)-1]
			b.Reviews[1].Count++
			b.Timeline[0].Reviews++
			b.Smallest = &run.Smallest{Count: 2, Requests: []string{"0s: one", "1s: another"}, Text: "3 reviews, predicted 2"}
		}, Failed, "The smallest schedule that shows it has 2 requests (3 reviews, predicted 2): 0s: one; 1s: another"},
		{"reviews of a kind that was not predicted", Thresholds{}, func(r *run.Run) {
			r.Blocks[2].Reviews = append(r.Blocks[2].Reviews, run.ReviewCount{ReviewKind: run.ReviewKind{Mode: "user-info", Verb: "impersonate:user-info", Decision: "NoOpinion"}, Count: 7})
			r.Blocks[2].Timeline[0].Reviews += 7
		}, Failed, "user-info impersonate:user-info NoOpinion: 7 reviews, predicted none"},
		{"a counter that was changed", Thresholds{}, func(r *run.Run) {
			r.Blocks[3].Reviews[0].Count -= 100
		}, Inconclusive, "block 3: reviews, by mode and by second: 700 and 800"},
		{"nothing to judge", Thresholds{}, func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Predicted = nil
			}
		}, Inconclusive, "nothing was judged"},
		{"p99 broken", Thresholds{Limits: Limits{P99: run.Duration(time.Millisecond)}}, nil, Failed, "p99: "},
		{"p99 undecided", Thresholds{Limits: Limits{P99: run.Duration(6800 * time.Microsecond)}}, nil, Inconclusive, "p99: "},
		{"errors", Thresholds{Limits: Limits{ErrorRate: new(0.0)}}, func(r *run.Run) {
			r.Blocks[0].Answers = map[string]int64{"200": 399, "timeout": 1}
		}, Failed, "1 of 16000 answers are errors"},
		{"wrong answers", Thresholds{Limits: Limits{ErrorRate: new(0.0)}}, func(r *run.Run) {
			r.Blocks[0].Answers = map[string]int64{"200": 399, "403": 1}
			r.Blocks[0].Wrong, r.Blocks[0].Timeline[0].Errors = map[string]int64{"403: expected 200": 1}, 1
		}, Failed, "1 of 16000 answers are errors"},
		{"throttled", Thresholds{Limits: Limits{ErrorRate: new(0.0)}}, func(r *run.Run) {
			r.Blocks[0].Answers = map[string]int64{"200": 398, "429": 1, "503": 1}
		}, Failed, "2 of 16000 answers are errors"},
		{"throttled, and asked again", Thresholds{Limits: Limits{ErrorRate: new(0.0)}}, func(r *run.Run) {
			r.Blocks[0].Answers = map[string]int64{"200": 400, "429": 30, "refused": 2}
			r.Blocks[0].Retried, r.Blocks[0].Again = 32, map[string]int64{"429": 30, "refused": 2}
		}, Passed, ""},
		{"errors within the limit", Thresholds{Limits: Limits{ErrorRate: new(0.01)}}, func(r *run.Run) {
			r.Blocks[0].Answers = map[string]int64{"200": 399, "429": 1}
		}, Passed, ""},
		{"slo broken", Thresholds{Limits: Limits{SLOHeld: true}}, func(r *run.Run) {
			for i := range r.Blocks {
				slow := histogram.Histogram{}
				slow.RecordN(1100*time.Millisecond, 400)
				r.Blocks[i].Kinds = map[string]histogram.Histogram{"get": slow}
			}
		}, Failed, "sloHeld (get): 11"},
		{"slo of lists", Thresholds{Limits: Limits{SLOHeld: true}}, func(r *run.Run) {
			for i := range r.Blocks {
				slow := histogram.Histogram{}
				slow.RecordN(1100*time.Millisecond, 400)
				r.Blocks[i].Kinds = map[string]histogram.Histogram{"list": slow}
			}
		}, Passed, ""},
		{"slo of nothing", Thresholds{Limits: Limits{SLOHeld: true}}, func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Kinds = nil
			}
		}, Inconclusive, "no latencies by kind of request"},
		{"slo of too few answers", Thresholds{Limits: Limits{SLOHeld: true, ErrorRate: new(0.0)}}, fewAnswers, Passed, ""},
		{"slo of too few answers, and a limit of latency", Thresholds{Limits: Limits{SLOHeld: true, P99: run.Duration(time.Second)}}, fewAnswers, Inconclusive, "a p99 needs 368"},
		{"margin without a comparison", Thresholds{Margin: 0.05}, func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Uses = nil
			}
		}, Inconclusive, "there is no comparison"},
		{"a margin below 0", Thresholds{Margin: -0.05}, nil, Inconclusive, "thresholds: margin: -0.05"},
		{"an error rate in percent", Thresholds{Variants: map[string]Limits{"legacy": {ErrorRate: new(5.0)}}}, nil, Inconclusive, "thresholds: variants.legacy.errorRate: 5"},
		{"margin too small to tell", Thresholds{Margin: 0.001}, nil, Inconclusive, "undecided"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := simulated.Sound().Run()
			if c.spoil != nil {
				c.spoil(&r)
			}
			result := Judge(r, c.t)
			if result.Outcome != c.outcome || !strings.Contains(strings.Join(result.Reasons, "\n"), c.why) {
				t.Errorf("want %s, %q; got %s", c.outcome, c.why, reasonsText(result))
			}
		})
	}
}

func TestSlowerFails(t *testing.T) {
	s := simulated.Sound()
	s.Effect = 0.2
	result := Judge(s.Run(), allOf())
	if result.Outcome != Failed || !strings.Contains(reasonsText(result), "above: 90 % interval") {
		t.Error(reasonsText(result))
	}
	e := result.Comparisons[0].P50
	if e.Change.Low > 0.2 || e.Change.High < 0.2 || e.PHolm > 0.001 || e.Milliseconds.Estimate < 0.6 || e.Milliseconds.Estimate > 1 {
		t.Errorf("%+v", e)
	}
	s.Effect = -0.2
	if result := Judge(s.Run(), allOf()); result.Outcome != Passed || result.Comparisons[0].P50.Verdict != statistics.Below {
		t.Error(reasonsText(result))
	}
}

// TestP99NeedsSamples checks that a p99 of blocks with fewer than 368 answers is not printed, and that one that was
// requested is not passed.
func TestP99NeedsSamples(t *testing.T) {
	s := simulated.Sound()
	s.Requests = 360
	result := Judge(s.Run(), allOf())
	e := result.Comparisons[0].P99
	if result.Outcome != Inconclusive || e.Measured || e.Verdict != statistics.Undecided || !strings.Contains(e.Why, "needs 368") {
		t.Errorf("%+v, %s", e, reasonsText(result))
	}
	if !result.Comparisons[0].P50.Measured {
		t.Error("the p50 is not measured either")
	}
}

// TestVerdictNeedsPairsAndStarts checks that, however little was declared to be enough, there is no verdict on fewer
// pairs and starts than the statistics need. Only "unknown" is said, and the run is inconclusive.
func TestVerdictNeedsPairsAndStarts(t *testing.T) {
	for _, c := range []struct {
		pairs, starts int
		why           string
	}{
		{6, 5, "6 pairs in 5 starts; a claim needs 7 pairs in 5 starts"},
		{20, 4, "20 pairs in 4 starts; a claim needs 7 pairs in 5 starts"},
		{1, 1, "1 pair in 1 start; a claim needs 7 pairs in 5 starts"},
	} {
		s := simulated.Sound()
		s.Pairs, s.Starts = c.pairs, c.starts
		r := s.Run()
		result := Judge(r, Thresholds{Margin: 0.5, MinPairs: 1, MinStarts: 1})
		e := result.Comparisons[0].P50
		if result.Outcome != Inconclusive || e.Measured || e.Verdict != statistics.Undecided || e.Why != c.why ||
			e.Change != (statistics.Interval{}) {
			t.Errorf("%d pairs in %d starts: %+v, %s", c.pairs, c.starts, e, reasonsText(result))
		}
		// If no margin is declared, nothing is claimed about a difference, and what was declared is enough.
		if result := Judge(r, Thresholds{MinPairs: 1, MinStarts: 1}); result.Outcome != Passed {
			t.Errorf("%d pairs in %d starts, no margin: %s", c.pairs, c.starts, reasonsText(result))
		}
	}
}

// TestSimulatedVerdicts judges simulated runs completely: what is called different by the adjusted p, and what passes
// the A/A check.
func TestSimulatedVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const runs, margin = 100, 0.08
	count := func(effect float64) (different, aa, passed int) {
		r := rand.New(rand.NewPCG(5, 5))
		for range runs {
			s := simulated.Sound()
			s.Seed, s.Effect, s.Noise, s.Process = r.Uint64N(1<<40), effect, 0.02, 0.01
			result := Judge(s.Run(), Thresholds{Margin: margin})
			if result.Comparisons[0].P50.PHolm <= 0.05 {
				different++
			}
			for _, c := range result.Checks {
				if c.Name == SameServers && c.State == Broken {
					aa++
				}
			}
			if result.Outcome == Passed {
				passed++
			}
		}
		return different, aa, passed
	}
	limit := 0
	for (distuv.Binomial{N: runs, P: 0.05}).CDF(float64(limit)) < 0.999 {
		limit++
	}
	different, aa, passed := count(0)
	t.Logf("no difference: %d of %d different, %d with an A/A that differs, %d passed", different, runs, aa, passed)
	if different > limit || aa > limit {
		t.Errorf("%d of %d different, %d A/A pairs differ, expected at most %d", different, runs, aa, limit)
	}
	if passed < runs*80/100 {
		t.Errorf("%d of %d pass, though nothing is wrong", passed, runs)
	}
	different, _, passed = count(margin)
	t.Logf("+8 %%: %d of %d different, %d passed", different, runs, passed)
	if different < runs*90/100 {
		t.Errorf("+8 %% is found in %d of %d runs", different, runs)
	}
	// The difference equals the margin, so at most 5 % may be called equivalent.
	if passed > limit {
		t.Errorf("%d of %d pass with a difference as large as the margin", passed, runs)
	}
}
