// Package reports has the report of every product, and what follows from its results alone, so that no field can be set
// to "passed" by a run. A report is a folder: report.yaml is what was found, record.jsonl lists the evidence from which
// anybody can compute it again, and report.html, summary.md and junit.xml show the same to people and to CI systems.
package reports

import (
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// FileVersion is the API version of the files that users write: known-failing lists and matrices.
const FileVersion = apiGroup + "/v1alpha1"

// APIVersion is the API version of the reports of products that have a type of their own.
const APIVersion = apiGroup + "/v1alpha2"

const apiGroup = "authzconf.dev"

// NotRunCause is the kind of reason for which a scenario was not run.
type NotRunCause string

const (
	// CauseTarget means that the scenario is for another version or gate state. Nothing is missing.
	CauseTarget NotRunCause = "target"
	// CauseUser means that the user left it out (--focus, --skip, --level, --suite). The report covers less, and says
	// so.
	CauseUser NotRunCause = "user"
	// CauseTargetLacks means that the target lacks a capability that the case needs. Its result is notSupported.
	CauseTargetLacks NotRunCause = "unsupported"
	// CausePath means that a later stage of the upgrade path creates what the scenario needs.
	CausePath NotRunCause = "path"
)

// Counts are the results of one level on one cell.
type Counts struct {
	Passed int `json:"passed"`
	// Failed does not include those that KnownFailing counts.
	Failed int `json:"failed"`
	// KnownFailing is how many failed for the reason that the known-failing list states.
	KnownFailing  int `json:"knownFailing"`
	Invalid       int `json:"invalid"`
	NotSupported  int `json:"notSupported"`
	Skipped       int `json:"skipped"`       // with this verdict, and scenarios left out by the user
	NotApplicable int `json:"notApplicable"` // scenarios for another version or gate state
}

// Executed returns how many scenarios were run to an end, whatever the end.
func (c Counts) Executed() int { return c.Passed + c.Failed + c.KnownFailing + c.Invalid }

// Levels returns the levels in the order in which they are shown.
func Levels() []scenarios.Level {
	return []scenarios.Level{scenarios.Core, scenarios.Extended, scenarios.Divergence}
}

// Executed reports whether a verdict is that of a case that was run to an end, whatever the end.
func Executed(v verdicts.Verdict) bool {
	return v == verdicts.Passed || v == verdicts.Failed || v == verdicts.Invalid
}
