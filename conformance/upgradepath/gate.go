package upgradepath

import (
	"cmp"

	"github.com/authzconf/authzconf/engine/gates"
	"github.com/authzconf/authzconf/engine/server"
)

// HasOtherGate reports whether the path is about another gate than ConstrainedImpersonation, which then has the state that it
// has by default on every stage.
func (p *Path) HasOtherGate() bool { return p.Gate() != server.GateName }

// Gate returns the name of the gate that the path is about.
func (p *Path) Gate() string { return cmp.Or(p.FeatureGate, server.GateName) }

// checkFeatureGate refuses a gate that no version has.
func (p *Path) checkFeatureGate() error {
	if !p.HasOtherGate() {
		return nil
	}
	return gates.CheckName(p.FeatureGate)
}
