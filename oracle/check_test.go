package oracle

import (
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// unmodelled are the scenarios that the model cannot follow, each with the
// reason. What is left of them is not checked at all, so the list stays short.
var unmodelled = map[string]string{}

// explainUnmodelled returns why the model cannot follow a scenario; "" if it can.
func explainUnmodelled(s *scenarios.Scenario) string {
	if len(s.Requires.FeatureGates) > 0 {
		return "the model knows no other gate than ConstrainedImpersonation"
	}
	return unmodelled[s.ID]
}

// cells are the servers that scenarios select themselves for: each minor as its
// own binary, and 1.37 emulating the others.
func cells() (out []scenarios.Facts) {
	add := func(kubernetes, binary string, gates ...scenarios.Gate) {
		for _, g := range gates {
			f := scenarios.Facts{Kubernetes: kubernetes, Binary: binary, Gate: g, Capabilities: scenarios.AllCapabilities()}
			if g == scenarios.GateOff || binary == "1.35" {
				f.Capabilities = slices.DeleteFunc(f.Capabilities, func(c scenarios.Capability) bool { return c == scenarios.Metrics })
			}
			out = append(out, f)
		}
	}
	on, off := scenarios.GateOn, scenarios.GateOff
	for _, v := range []string{"1.33", "1.34"} {
		add(v, v, off)
	}
	for _, v := range []string{"1.35", "1.36", "1.37"} {
		add(v, v, on, off)
	}
	add("1.34", "1.37", off)
	add("1.35", "1.37", on, off)
	add("1.36", "1.37", on, off)
	return out
}

// embedded are the scenarios that come with authzconf.
var embedded = sync.OnceValues(func() (*scenarios.Set, error) {
	return scenarios.Load(scenarios.FS, fixtures.FS)
})

func loadAll(t testing.TB) *scenarios.Set {
	t.Helper()
	set, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestScenarios holds the hand-written expectations and the model against each
// other, on every server that a scenario can run on, under its own names and
// under unique ones.
func TestScenarios(t *testing.T) {
	set := loadAll(t)
	runs, left := 0, 0
	for _, s := range set.All() {
		if why := explainUnmodelled(s); why != "" {
			left++
			t.Logf("not modelled: %s: %s", s.ID, why)
			continue
		}
		bound, _ := s.Bind("x12345")
		selected := 0
		for _, f := range cells() {
			f.Chain = s.Requires.Chain
			if ok, _, _ := s.Selected(f); !ok {
				continue
			}
			selected++
			for _, v := range []*scenarios.Scenario{s, bound} {
				runs++
				found, err := check(v, f, fixtures.FS)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range found {
					t.Errorf("%s as %s, gate %s: %s", f.Binary, f.Kubernetes, f.Gate, d)
				}
			}
		}
		if selected == 0 {
			t.Errorf("%s selects none of the servers", s.ID)
		}
	}
	for id := range unmodelled {
		if _, known := set.Get(id); !known {
			t.Errorf("unmodelled names %s, which is not a scenario", id)
		}
	}
	t.Logf("%d scenarios, %d runs", set.Len()-left, runs)
}

// disagreement is a point in which a scenario and the model do not agree.
type disagreement struct {
	Scenario string
	// Step is the index of the step, from 0.
	Step int
	Difference
}

// String says it on three lines.
func (d disagreement) String() string {
	return fmt.Sprintf("%s, step %d, %s:\n  expected  %s\n  predicted %s", d.Scenario, d.Step, d.Field, d.Expected, d.Predicted)
}

// check compares every expectation of a scenario with what the model predicts
// for a server.
func check(s *scenarios.Scenario, f scenarios.Facts, fixtures fs.FS) ([]disagreement, error) {
	played, err := Play(s, f, fixtures)
	if err != nil {
		return nil, err
	}
	var out []disagreement
	for _, r := range played {
		if r.Expect == nil {
			continue
		}
		for _, d := range r.Prediction.Compare(r.Expect) {
			out = append(out, disagreement{s.ID, r.Step, d})
		}
	}
	return out, nil
}
