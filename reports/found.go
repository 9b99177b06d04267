package reports

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// FoundTarget is a control plane as it was asked for and as it was found to be.
type FoundTarget struct {
	verdicts.Cell `json:",inline"`
	Facts         scenarios.Facts `json:"facts"`
	Witness       Witness         `json:"witness"`
}

// Check returns how a control plane differs from the one that its options ask for.
func (f FoundTarget) Check(want FoundTarget) error {
	bare := FoundTarget{Cell: f.Cell, Facts: f.Facts}
	bare.Witness.ExpectedGate, bare.Witness.AskedAuthorizers = f.Witness.ExpectedGate, f.Witness.AskedAuthorizers
	bare.Witness.AskedSettings = f.Witness.AskedSettings
	if g := f.Witness.FeatureGate; g != nil {
		bare.Witness.FeatureGate = &FeatureGate{Name: g.Name, Expected: g.Expected}
	}
	if !same(bare, want) {
		return fmt.Errorf("the control plane %s is not the one of the command line: %s", f.Name, changeTo("the command line", bare, want))
	}
	if m := f.Witness.Judge(f.Cell, f.Facts.Capabilities); len(m) > 0 || len(f.Witness.Mismatches) > 0 {
		return fmt.Errorf(
			"the control plane %s is not what was asked for: %s",
			f.Name,
			strings.Join(append(m, f.Witness.Mismatches...), "; "),
		)
	}
	return nil
}
