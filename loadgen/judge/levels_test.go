package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// TestPriorityLevels checks that the difference in time of two sides in different priority levels is unknown, and its
// limits, too.
func TestPriorityLevels(t *testing.T) {
	const system, global = "dispatched system", "dispatched global-default"
	for name, c := range map[string]struct {
		a, b map[string]float64
		want string
	}{
		"nothing is known of levels": {nil, nil, ""},
		"one level":                  {map[string]float64{system: 400}, map[string]float64{system: 400, "dispatched exempt": 900}, ""},
		"one level, after a restart": {map[string]float64{system: 400}, map[string]float64{system: 380, "dispatched catch-all": 20}, ""},
		"two levels":                 {map[string]float64{global: 400}, map[string]float64{system: 400}, "A is dispatched in the priority level global-default, B in system"},
		"refused before":             {map[string]float64{global: 400}, map[string]float64{"dispatched exempt": 4}, "A is dispatched in the priority level global-default, B in no level"},
	} {
		r := simulated.Sound().Run()
		for i := range r.Blocks {
			if b := &r.Blocks[i]; b.Uses[0].Role == "A" || b.Uses[0].AA {
				b.FlowControl = c.a
			} else {
				b.FlowControl = c.b
			}
		}
		result := Judge(r, allOf())
		gate, aa := result.Comparisons[0], result.Comparisons[1]
		switch {
		case gate.Measured() != (c.want == "") || gate.P50.Why != c.want:
			t.Errorf("%s: %+v", name, gate.P50)
		case !aa.Measured():
			t.Errorf("%s: the A/A comparison is not measured: %s", name, aa.P50.Why)
		case c.want != "" &&
			(result.Outcome != Inconclusive || !strings.Contains(reasonsText(result), "gate: p50 margin: unknown ("+c.want)):
			t.Errorf("%s: %s", name, reasonsText(result))
		}
	}
}

func TestSumLevels(t *testing.T) {
	counters := map[string]float64{}
	for counter, n := range map[run.FlowCounter]float64{
		{What: "dispatched", Level: "system"}: 100, {What: "waited", Level: "system", Further: "seconds"}: 0.5,
		{What: "rejected", Level: "system", Further: "queue-full"}: 7, {What: "rejected", Level: "system", Further: "time-out"}: 2,
		{What: "dispatched", Level: "catch-all"}: 3, {What: "dispatched", Level: "exempt"}: 900,
	} {
		counters[counter.String()] = n
	}
	levels := SumLevels(counters)
	if len(levels) != 2 || levels[0].String() != "system: 100 dispatched after 5.00 ms, rejected 7 (queue-full), 2 (time-out)" ||
		levels[1].String() != "catch-all: 3 dispatched after 0.00 ms" {
		t.Errorf("%v", levels)
	}
}

// TestOnlyWatches checks that agents that only watch have no objective to keep, and that nothing is missing because of
// that.
func TestOnlyWatches(t *testing.T) {
	r := simulated.Sound().Run()
	for i := range r.Blocks {
		r.Blocks[i].Kinds = map[string]histogram.Histogram{"watch": r.Blocks[i].Latency}
	}
	result := Judge(r, Thresholds{Limits: Limits{SLOHeld: true, ErrorRate: new(0.0)}})
	if result.Outcome != Passed {
		t.Error(reasonsText(result))
	}
	if !slices.ContainsFunc(result.Notes, func(n string) bool { return strings.Contains(n, "no latency objective for a watch") }) {
		t.Errorf("notes %q", result.Notes)
	}
}

// TestTwinInAnotherLevel checks that a baseline whose servers dispatch in different priority levels is not used for
// times.
func TestTwinInAnotherLevel(t *testing.T) {
	for level, isCompared := range map[string]bool{"system": true, "global-default": false} {
		r := simulated.Sound().Run()
		twoBaselines(&r)
		for i := range r.Blocks {
			b := &r.Blocks[i]
			b.FlowControl = map[string]float64{"dispatched system": float64(b.Sent)}
			if b.Server == "gate-off-2" {
				b.FlowControl = map[string]float64{"dispatched " + level: float64(b.Sent)}
			}
		}
		gate := findComparison(t, Judge(r, allOf()), "gate")
		if gate.P50.Measured != isCompared {
			t.Errorf("a twin in the level %s: p50 %s", level, gate.P50)
		}
	}
}
