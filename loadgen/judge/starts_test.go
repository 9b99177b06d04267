package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
)

// TestStarts checks that starts that were not real are recognized by their processes.
func TestStarts(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*run.Block)
		why   string
	}{
		{"never restarted", func(b *run.Block) { b.ServerStarted = time.Unix(1, 0) }, "is the same process in the starts 0 and 1"},
		{"does not say", func(b *run.Block) { b.ServerStarted = time.Time{} }, "does not say since when it runs"},
		{"sides of two starts", func(b *run.Block) {
			if b.Uses[0].Role == "A" && b.Pair == 4 {
				b.Start = 0
			}
		}, "has its sides in two starts of the servers, 0 and 1"},
	} {
		r := simulated.Sound().Run()
		for i := range r.Blocks {
			c.spoil(&r.Blocks[i])
		}
		if result := Judge(r, allOf()); result.Outcome != Inconclusive || !strings.Contains(reasonsText(result), c.why) {
			t.Errorf("%s: %s", c.name, reasonsText(result))
		}
	}
}

// twoBaselines turns pairs of a sound run into rounds, so that the server that is like the baseline's is part of the
// baseline.
func twoBaselines(r *run.Run) {
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Server == "gate-off-2" {
			b.Uses = append(b.Uses, run.Use{Comparison: "gate", Role: "A"})
		}
	}
}

// TestTwoBaselines checks that in a round the baseline is all servers that are alike, whichever of them a side was
// paired with.
func TestTwoBaselines(t *testing.T) {
	sound := simulated.Sound()
	sound.AAEffect = 0.2
	r := sound.Run()
	twoBaselines(&r)
	gate := findComparison(t, Judge(r, allOf()), "gate")
	if len(gate.Twins) != 1 || gate.Twins[0] != "legacy on gate-off-2" {
		t.Errorf("baseline %s with %q", gate.A, gate.Twins)
	}
	// The other baseline takes 20 % longer. So the other side, which is as fast as the first, takes 1-1/√1.2 = 8.7 %
	// less than both, apart from the noise of rounds.
	if change := gate.P50.Change.Estimate; change > -0.05 || change < -0.13 {
		t.Errorf("against both baselines %s", gate.P50)
	}

	for i := range r.Blocks {
		if b := &r.Blocks[i]; b.Server == "gate-off-2" && b.Pair == 3 {
			b.Server = "gate-off"
		}
	}
	if reasons := reasonsText(Judge(r, allOf())); !strings.Contains(reasons, "pair 3 of gate has 2 blocks as A and 1 as B") {
		t.Errorf("one server twice in a baseline: %s", reasons)
	}
}

func findComparison(t *testing.T, r Result, name string) Comparison {
	t.Helper()
	for _, c := range r.Comparisons {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no comparison %s", name)
	return Comparison{}
}

// TestDisturbed checks that what a machine did beside a block is not taken for what the block shows.
func TestDisturbed(t *testing.T) {
	const second = run.Duration(time.Second)
	for _, c := range []struct {
		name     string
		pressure run.Pressure
		why      string
	}{
		{"a quiet machine", run.Pressure{Busy: 2 * second, Waited: 9 * second}, ""},
		{"a hypervisor with other guests", run.Pressure{Busy: 2 * second, Stolen: second / 2}, "the hypervisor took 2.5 %"},
		{"a build beside it", run.Pressure{Busy: 9 * second}, "other processes had 3"},
	} {
		r := simulated.Sound().Run()
		for i := range r.Blocks {
			if b := &r.Blocks[i]; b.Start == 2 && b.Uses[0].Comparison == "gate" {
				b.Pressure = &c.pressure
				if got := b.FindDisturbance(r.Machine.CPUs); !strings.HasPrefix(got, c.why) || !hasReason(got, c.why) {
					t.Errorf("%s: %q, want %q", c.name, got, c.why)
				}
			}
		}
		gate := findComparison(t, Judge(r, allOf()), "gate")
		if isLeftOut := gate.Disturbed == 4; isLeftOut != (c.why != "") || gate.P50.Measured == isLeftOut {
			t.Errorf("%s: %d pairs left out, p50 %s", c.name, gate.Disturbed, gate.P50)
		}
		if gate.Disturbed > 0 && !strings.Contains(gate.P50.Why, "4 more pairs are left out, because others used the machine") {
			t.Errorf("%s: %s", c.name, gate.P50.Why)
		}
	}
}

// hasReason reports whether there is a reason just where one is wanted.
func hasReason(got, want string) bool { return (got == "") == (want == "") }
