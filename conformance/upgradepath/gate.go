package upgradepath

import (
	"cmp"

	"github.com/authzconf/authzconf/engine/gates"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// HasOtherGate reports whether the path is about another gate than ConstrainedImpersonation, which then has the state that it
// has by default on every stage.
func (p *Path) HasOtherGate() bool { return p.Gate() != server.GateName }

// Gate returns the name of the gate that the path is about.
func (p *Path) Gate() string { return cmp.Or(p.FeatureGate, server.GateName) }

// CanHave reports whether a scenario can be part of the path: it needs no gate to be on or off, or the one that the path is
// about. On a path about another gate it would apply to no stage, and its objects would be made for nothing.
func (p *Path) CanHave(s *scenarios.Scenario) bool {
	return len(s.Requires.FeatureGates) == 0 || p.Names(s)
}

// Names reports whether a scenario needs the gate of the path to be on or off.
func (p *Path) Names(s *scenarios.Scenario) bool {
	_, isNamed := s.Requires.FeatureGates[p.Gate()]
	return isNamed
}

// checkFeatureGate refuses a gate that no version has.
func (p *Path) checkFeatureGate() error {
	if !p.HasOtherGate() {
		return nil
	}
	return gates.CheckName(p.FeatureGate)
}
