package server

import (
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// AskedTarget returns a target as its options ask for it, to compare with what was found.
func (o Options) AskedTarget() reports.FoundTarget {
	f := reports.FoundTarget{Cell: o.Cell, Facts: ExpectedFacts(o)}
	f.Witness.ExpectedGate, f.Witness.AskedSettings = f.Facts.Gate, expectedSettings(o)
	f.Witness.FeatureGate = expectedFeatureGate(o)
	m, _ := loadMiddle(o.Chain) // a chain that is none has no target
	f.Witness.AskedAuthorizers = m.listAuthorizers()
	return f
}

// CheckTarget returns how a control plane is not the one that was asked for, or which of its programs cannot come from where
// the witness says it comes from.
func CheckTarget(found, want reports.FoundTarget) error {
	if err := found.Check(want); err != nil {
		return err
	}
	return checkPrograms(found.Witness.Programs)
}

func checkPrograms(programs []reports.Program) error {
	for _, p := range programs {
		if err := local.CheckProgram(p.Origin, p.Name, p.Version, p.SHA256); err != nil {
			return err
		}
	}
	return nil
}

// FoundTarget returns the target as it was found to be.
func (s *Server) FoundTarget() reports.FoundTarget {
	return reports.FoundTarget{Cell: s.Cell, Facts: s.Facts, Witness: s.Witness}
}

// ExpectedFacts is what scenarios are selected by on a target that is as asked for. The witness has to confirm it.
func ExpectedFacts(o Options) scenarios.Facts {
	f := scenarios.Facts{
		Kubernetes: o.Effective(),
		Binary:     o.Cell.Kubernetes,
		Chain:      o.Chain,
		Gate:       EffectiveGate(o.Effective(), o.askedGate()),
	}
	f.FeatureGates = o.effectiveFeatureGates()
	f.Capabilities = capabilities(o, f)
	return f
}

// capabilities says what scenarios can ask of a cluster, in the order of reports.
func capabilities(o Options, f scenarios.Facts) (list scenarios.Capabilities) {
	can := o.Capabilities()
	recorded := can.Recorder && o.Plain == nil
	isCounted := f.Gate == scenarios.GateOn && !minorBefore(f.Binary, 36)
	for _, c := range []struct {
		capability scenarios.Capability
		has        bool
	}{
		{scenarios.Reviews, recorded},
		{scenarios.Audit, can.AuditLog && o.Plain == nil},
		{scenarios.RequestHeader, !can.Foreign},
		{scenarios.Tokens, true},
		{scenarios.RBAC, true},
		{scenarios.Aggregation, recorded},
		{scenarios.Metrics, can.Metrics && isCounted},
		{scenarios.KubeletNodes, can.Nodes},
		{scenarios.Signing, can.Processes},
	} {
		if c.has {
			list = append(list, c.capability)
		}
	}
	return list
}
