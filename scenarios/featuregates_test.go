package scenarios_test

import (
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

func TestFeatureGatesSelect(t *testing.T) {
	s := &scenarios.Scenario{
		Requires: scenarios.Requires{Gate: scenarios.GateAny, FeatureGates: map[string]scenarios.Gate{"MyGate": scenarios.GateOn}},
	}
	for _, test := range []struct {
		gates map[string]scenarios.Gate
		why   string
	}{
		{map[string]scenarios.Gate{"MyGate": scenarios.GateOn}, ""},
		{map[string]scenarios.Gate{"MyGate": scenarios.GateOff}, "needs the gate MyGate on, the target has it off"},
		{map[string]scenarios.Gate{"OtherGate": scenarios.GateOn}, "needs the gate MyGate on, which nobody asked for on the target"},
		{nil, "needs the gate MyGate on, which nobody asked for on the target"},
	} {
		ok, _, why := s.Selected(scenarios.Facts{Kubernetes: "1.37", Binary: "1.37", Gate: scenarios.GateOn, FeatureGates: test.gates})
		if ok != (test.why == "") || why != test.why {
			t.Errorf("%v: %t, %q, want %q", test.gates, ok, why, test.why)
		}
	}
}
