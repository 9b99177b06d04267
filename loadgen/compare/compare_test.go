package compare

import (
	"math"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/simulated"
	"github.com/authzconf/authzconf/scenarios"
)

// makeStorm returns a storm on one server, of the blocks of the simulated baseline or of the other side.
func makeStorm(t *testing.T, role string, spoil func(*run.Run)) *Storm {
	t.Helper()
	simulatedStorm := simulated.Sound()
	simulatedStorm.Starts, simulatedStorm.AAPairs = 1, 0
	r := simulatedStorm.Run()
	kept := r.Blocks[:0]
	for _, b := range r.Blocks {
		if b.Uses[0].Role == role {
			kept = append(kept, b)
		}
	}
	r.Blocks = kept
	for i := range r.Blocks {
		b := &r.Blocks[i]
		b.Uses, b.Server = nil, "gate-off"
		b.WebhookCalls = 2 * b.Sent
	}
	r.Servers = r.Servers[:1]
	if spoil != nil {
		spoil(&r)
	}
	return &Storm{Run: r, Result: judge.Judge(r, judge.Thresholds{})}
}

func findFigure(t *testing.T, c *Comparison, name string) Figure {
	t.Helper()
	for _, f := range c.Variants[0].Figures {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no figure %s", name)
	return Figure{}
}

func TestCompare(t *testing.T) {
	before := makeStorm(t, "A", nil)
	after := makeStorm(t, "B", func(r *run.Run) { r.Servers[0].Gate = scenarios.GateOn })
	c, err := Compare(before, after, Options{Pairs: map[string]string{"legacy": "associated-node"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Before.Gate != scenarios.GateOff || c.After.Gate != scenarios.GateOn {
		t.Errorf("gate %s, then %s", c.Before.Gate, c.After.Gate)
	}
	checks := findFigure(t, c, "checks per request")
	if checks.Before != 2 || checks.After > 1.12 || !checks.Changed() || checks.Difference.High > -0.8 {
		t.Errorf("checks %+v", checks)
	}
	calls := findFigure(t, c, "reviews at webhooks per request")
	if calls.Changed() || calls.Before != 2 {
		t.Errorf("webhook %+v", calls)
	}
	p50 := findFigure(t, c, "latency, p50")
	if p50.Why != "" || math.Abs(p50.Difference.Estimate) > 0.3 {
		t.Errorf("p50 %+v", p50)
	}
	if got := strings.Join(c.Notes, " "); !strings.Contains(got, "one start of the API server each") {
		t.Errorf("notes %s", got)
	}
}

// TestChecksOfOthers checks that the checks of agents are unknown if they cannot be told from those of others, whatever
// was counted.
func TestChecksOfOthers(t *testing.T) {
	before := makeStorm(t, "A", nil)
	after := makeStorm(t, "A", func(r *run.Run) { r.OwnUnknown = true })
	c, err := Compare(before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if checks := findFigure(t, c, "checks per request"); checks.Why == "" || checks.Before != 0 {
		t.Errorf("checks %+v", checks)
	}
}

func TestNotComparable(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*run.Run)
		why   string
	}{
		{"other agents", func(r *run.Run) { r.Population.Nodes = 7 }, "the storms had other agents"},
		{"other engine", func(r *run.Run) { r.Engine = "kubernetes" }, "expected the same --engine and --shards"},
		{"two servers", func(r *run.Run) { r.Servers = append(r.Servers, r.Servers[0]) }, "compares servers of its own"},
		{"interrupted", func(r *run.Run) { r.Interrupted = true }, "the second storm is inconclusive"},
		{"other variants", func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Variant = "denied"
			}
		}, "no variant in common (legacy; denied)"},
		{"other blocks", func(r *run.Run) {
			for i := range r.Blocks {
				r.Blocks[i].Length *= 2
			}
		}, "blocks of 10s and of 20s"},
	} {
		_, err := Compare(makeStorm(t, "A", nil), makeStorm(t, "A", c.spoil), Options{})
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", c.name, err, c.why)
		}
	}
}
