package judge

import (
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
)

// TestPhases checks that the steady state is the settled part of blocks that are long enough, and that no other mean is
// called that.
func TestPhases(t *testing.T) {
	kind := run.ReviewKind{Mode: run.RequestMode, Verb: "list", Decision: "Allow"}
	settle := func(first int64) func(*run.Run) {
		return func(r *run.Run) {
			r.Steady = true
			for i := range r.Blocks {
				r.Blocks[i].Settled = &run.SettledPart{
					After:   run.Duration(5 * time.Second),
					Sent:    200,
					First:   first,
					Reviews: []run.ReviewCount{{ReviewKind: kind, Count: 300}},
					Checks:  []run.CheckRange{{ReviewKind: kind, Low: 290, High: 310}},
				}
			}
		}
	}
	for name, c := range map[string]struct {
		change    func(*run.Run)
		of        string
		mean      float64
		predicted Range
	}{
		"blocks of some length":              {func(*run.Run) {}, AskedBefore, 2, Range{2, 2}},
		"blocks of the length of a cycle":    {func(r *run.Run) { r.Steady = true }, SteadyState, 2, Range{2, 2}},
		"blocks that settle":                 {settle(0), SteadyState, 1.5, Range{1.45, 1.55}},
		"some had not asked when it settled": {settle(1), SteadyState, 2, Range{2, 2}},
	} {
		r := simulated.Sound().Run()
		c.change(&r)
		for _, v := range Judge(r, Thresholds{}).Variants {
			if v.Variant != "legacy" {
				continue
			}
			got := v.Reviews
			if got.Of != c.of || got.PerRequest.Estimate != c.mean || *got.Predicted != c.predicted || got.Verdict != AsPredicted ||
				got.Blocks == 0 {
				t.Errorf("%s, %s: %+v", name, v.Name, got)
			}
			if v.FirstContact == nil || v.FirstContact.Of != FirstContact {
				t.Errorf("%s, %s: first contact %+v", name, v.Name, v.FirstContact)
			}
		}
	}
}

// TestCountsAlone checks that late requests, or a machine that becomes slower, do not matter in a run that is not about
// time.
func TestCountsAlone(t *testing.T) {
	s := simulated.Sound()
	s.Pairs, s.AAPairs, s.Starts = 2, 0, 1
	r := s.Run()
	for i := range r.Blocks {
		r.Blocks[i].Late = 90
		if seconds := r.Blocks[i].Timeline; r.Blocks[i].Uses[0].Role == "A" { // a second late
			seconds[2].Sent, seconds[3].Sent = 0, seconds[2].Sent+seconds[3].Sent
		}
	}
	if result := Judge(r, Thresholds{MinPairs: 2, MinStarts: 1}); result.Outcome != Passed {
		t.Error(reasonsText(result))
	}
	result := Judge(r, Thresholds{MinPairs: 2, MinStarts: 1, Limits: Limits{P99: run.Duration(time.Second)}})
	if result.Outcome != Inconclusive {
		t.Errorf("a limit of latency: %s", reasonsText(result))
	}
}
