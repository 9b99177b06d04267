package target

import (
	"fmt"

	"github.com/Masterminds/semver/v3"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// GateName is the feature gate that authzconf toggles.
const GateName = "ConstrainedImpersonation"

// Asked is the state of the gate that a run asks for.
type Asked string

const (
	AskOn  Asked = "on"
	AskOff Asked = "off"
	// AskDefault leaves the gate as the version has it.
	AskDefault Asked = "default"
)

// GateKnown says whether an effective version (1.35 or 1.35.4) has the gate:
// since 1.35 (k8s.io/apiserver/pkg/features/kube_features.go).
func GateKnown(version string) bool { return !minorBefore(version, 35) }

// GateState is the effective state of the gate: what was asked or, by default, alpha and off in 1.35, beta and on
// since 1.36. A version without the gate behaves as off.
func GateState(version string, asked Asked) scenarios.Gate {
	on := asked == AskOn || asked == AskDefault && !minorBefore(version, 36)
	if on && GateKnown(version) {
		return scenarios.GateOn
	}
	return scenarios.GateOff
}

// minorBefore compares a version's minor with 1.<minor>; a version that cannot
// be parsed is a programming error, for versions are parsed on the way in.
func minorBefore(version string, minor uint64) bool {
	v, err := semver.NewVersion(version)
	if err != nil {
		panic(fmt.Sprintf("version %q: %v", version, err))
	}
	return v.Major() < 1 || v.Major() == 1 && v.Minor() < minor
}

// Wanted is a target as its options ask for it, for what it is found to be to be held to.
func (o Options) Wanted() reports.Found {
	f := reports.Found{Cell: o.Cell, Facts: ExpectedFacts(o)}
	f.Witness.ExpectedGate = string(f.Facts.Gate)
	f.Witness.AskedAuthorizers, _ = Authorizers(o.Chain) // a chain that is none has no target
	return f
}

// Found is the target as it was found to be.
func (t *Target) Found() reports.Found {
	return reports.Found{Cell: t.Cell, Facts: t.Facts, Witness: t.Witness}
}

// ExpectedFacts is what scenarios are selected by on a target that is what it is
// asked to be. The witness has to confirm it.
func ExpectedFacts(o Options) scenarios.Facts {
	f := scenarios.Facts{
		Kubernetes:   o.Effective(),
		Binary:       o.Cell.Kubernetes,
		Chain:        o.Chain,
		Gate:         GateState(o.Effective(), Asked(o.Cell.Gate)),
		Capabilities: []scenarios.Capability{scenarios.Reviews, scenarios.Audit, scenarios.RequestHeader, scenarios.Tokens, scenarios.RBAC, scenarios.Aggregation},
	}
	if o.Cell.Provider == Existing {
		f.Capabilities = existingCapabilities()
		return f
	}
	if f.Gate == scenarios.GateOn && !minorBefore(f.Binary, 36) {
		f.Capabilities = append(f.Capabilities, scenarios.Metrics)
	}
	if o.Cell.Provider == Kind {
		f.Capabilities = append(f.Capabilities, scenarios.KubeletNodes)
	}
	return f
}
