package server

import (
	"fmt"

	"github.com/Masterminds/semver/v3"

	"github.com/authzconf/authzconf/engine/gates"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// GateName is the feature gate that authzconf toggles.
const GateName = "ConstrainedImpersonation"

// HasGate reports whether an effective version (1.35 or 1.35.4) has the gate.
func HasGate(version string) bool {
	_, isThere := gates.Find(GateName, version)
	return isThere
}

// EffectiveGate returns the state of the gate: what was asked or, by default, alpha and off in 1.35, beta and on
// since 1.36. A version without the gate behaves as off.
func EffectiveGate(version string, requestedGate scenarios.Gate) scenarios.Gate {
	return gates.State(GateName, version, requestedGate)
}

// minorBefore compares a version's minor with 1.<minor>; a version that cannot
// be parsed is a programming error, for versions are parsed on the way in.
func minorBefore(version string, minor uint64) bool {
	v, err := semver.NewVersion(version)
	if err != nil {
		panic(fmt.Sprintf("version %q: %v", version, err))
	}
	if v.Major() != 1 {
		return v.Major() < 1
	}
	return v.Minor() < minor
}

// askedGate is what is asked of ConstrainedImpersonation: by the cell or, where that leaves the default, by --feature-gate.
func (o Options) askedGate() scenarios.Gate {
	isOn, isSet := o.FeatureGates[GateName]
	if o.Cell.Gate != scenarios.GateDefault || !isSet {
		return o.Cell.Gate
	}
	return gateOf(isOn)
}

// effectiveFeatureGates are the states, on or off, of the other gates that are asked for; nil if there are none.
func (o Options) effectiveFeatureGates() map[string]scenarios.Gate {
	states := map[string]scenarios.Gate{}
	for name, isOn := range o.FeatureGates {
		if name != GateName {
			states[name] = gateOf(isOn)
		}
	}
	if gate := o.Cell.FeatureGate; gate.Name != "" {
		states[gate.Name] = gates.State(gate.Name, o.Effective(), gate.Gate)
	}
	if len(states) == 0 {
		return nil
	}
	return states
}

func gateOf(isOn bool) scenarios.Gate {
	if isOn {
		return scenarios.GateOn
	}
	return scenarios.GateOff
}

// expectedFeatureGate returns what the metric of the other gate that a cell is about must show; nil if it is about none. A
// gate that the version does not have, or not any more, is absent.
func expectedFeatureGate(o Options) *reports.FeatureGate {
	gate := o.Cell.FeatureGate
	if gate.Name == "" {
		return nil
	}
	expected := gates.State(gate.Name, o.Effective(), gate.Gate)
	isUnset := gate.Gate == scenarios.GateDefault
	if _, isThere := gates.Find(gate.Name, o.Effective()); !isThere && isUnset {
		expected = scenarios.GateAbsent
	}
	return &reports.FeatureGate{Name: gate.Name, Expected: expected}
}
