package profile

import (
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// WithGate returns the profile on a server with a state of the gate, if that makes sense: the profile has one server,
// and no variant that needs the other state. Other profiles are returned unchanged.
func (p *Profile) WithGate(gate scenarios.Gate) *Profile {
	isBound := slices.ContainsFunc(p.Variants(), func(v Variant) bool { return v.Gate != "" && v.Gate != gate })
	if isBound || len(p.Servers()) != 1 {
		return p
	}
	moved := *p
	moved.Comparisons = slices.Clone(p.Comparisons)
	for i := range moved.Comparisons {
		c := &moved.Comparisons[i]
		c.A.Server, c.B.Server = ServerFor(gate), ServerFor(gate)
	}
	return &moved
}
