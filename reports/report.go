// Package reports holds the conformance report and what is made of it.
//
// A report is a folder. report.yaml (a ConformanceReport) is the claim; evidence/ holds what was seen,
// scenarios/ and fixtures/ the exact texts that were run, so that Verify, or anybody, can recompute the claim
// without the server, without the network and without trust in who ran it. report.html, summary.md and junit.xml
// show the same to people and to CI systems.
//
// What a report says follows from results alone (Complete, Conclude): there is no field that a run can set to "passed".
package reports

import (
	"fmt"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// The API type of report.yaml.
const (
	APIVersion = apiGroup + "/v1alpha2"
	Kind       = "ConformanceReport"

	// FileVersion is the API version of the files that users write: known-failing lists and matrices.
	FileVersion = apiGroup + "/v1alpha1"

	apiGroup = "authzconf.dev"
)

// ConformanceReport is what one run found, with all that is needed to judge whether to believe it. Whoever runs
// scenarios fills in what is marked "run"; Complete derives the rest.
type ConformanceReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	SuiteVersion string `json:"suiteVersion"` // the version of authzconf (run)
	// ScenariosDigest is the SHA-256 over IDs and digests of all Scenarios: with the same one, reports have the same text.
	ScenariosDigest string `json:"scenariosDigest"`
	Seed            int64  `json:"seed"` // what names were made unique from (run)
	// Started and Finished are when the run began and ended (run).
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Parallel is how many cells ran at once, PeakMemoryBytes the most memory that authzconf and its control
	// planes held together, 0 if not known (run).
	Parallel        int   `json:"parallel,omitempty"`
	PeakMemoryBytes int64 `json:"peakMemoryBytes,omitempty"`
	// Command is the command line that was given, program name included (run).
	Command []string `json:"command,omitempty"`
	// Inputs are the files that the command line names, by the paths it gives (run).
	Inputs map[string]string `json:"inputs,omitempty"`
	// Require are the levels of which everything must have run that is for the targets (run).
	Require        []scenarios.Level `json:"require,omitempty"`
	Implementation Implementation    `json:"implementation"` // what was judged (run)

	Outcome Outcome `json:"outcome"` // the overall judgement
	// Scenarios lists every scenario that was loaded. Each has to turn up on every cell, as a result or with the
	// reason why it was not run, so that nothing can be left out in silence.
	Scenarios []ScenarioRef `json:"scenarios"`
	// Cells are the targets and what came out on them (run, but for Summary).
	Cells []Cell      `json:"cells"`
	Path  *PathReport `json:"path,omitempty"` // set where the cells are the stages of an upgrade path
	// Findings are the divergences: where a document and the servers differ.
	Findings []Finding `json:"findings,omitempty"`
	// KnownFailing are the entries of the known-failing list with what became of them.
	KnownFailing []KnownFailingState `json:"knownFailing,omitempty"`
	// Files maps every other file of the folder, by its slash-separated path, to its SHA-256: evidence,
	// scenarios, fixtures, and the pages made from them. It is set by Write.
	Files map[string]string `json:"files,omitempty"`
}

// Implementation is what a report is about.
type Implementation struct {
	// Name is, for example, kube-apiserver, or the vendor's name of the product.
	Name string `json:"name"`
	// Version is the vendor's version, where there is one besides the Kubernetes version of each cell.
	Version  string `json:"version,omitempty"`
	Provider string `json:"provider"` // what brought the targets up: local, kind or existing
}

// ScenarioRef names one scenario text.
type ScenarioRef struct {
	ID     string          `json:"id"`
	Level  scenarios.Level `json:"level"`
	Digest string          `json:"digest"` // Scenario.Digest: of the file and its fixtures
}

// Cell is one target with what was asked of it, what it said of itself, and what was found on it.
type Cell struct {
	verdicts.Cell `json:",inline"`

	Facts   scenarios.Facts `json:"facts"`   // what scenarios were selected by
	Witness Witness         `json:"witness"` // what the target said of itself
	// Problem says why the target could not be used at all, with the last lines of its log. Any makes the run invalid.
	Problem string `json:"problem,omitempty"`
	// ReadySeconds is how long the target took to start, WallSeconds how long the scenarios took on it, waits included.
	ReadySeconds float64 `json:"readySeconds"`
	WallSeconds  float64 `json:"wallSeconds"`
	// Results are the verdicts of the scenarios that were to be run here, notSupported ones included.
	Results []verdicts.Result `json:"results"`
	NotRun  []NotRun          `json:"notRun,omitempty"` // the scenarios that were not to be run here, and why
	// Agents is what the node agent was allowed as a program in pods of real nodes; nil where that was not looked at.
	Agents *Agents `json:"agents,omitempty"`
	// Summary counts verdicts by level; a level without scenarios is absent.
	Summary map[scenarios.Level]Counts `json:"summary"`
}

// NotRunCause is the kind of reason for which a scenario was not run.
type NotRunCause string

const (
	// CauseTarget: the scenario is for another version or gate state. Nothing is missing.
	CauseTarget NotRunCause = "target"
	// CauseUser: the user left it out (--focus, --skip, --level, --suite). The report covers less, and says so.
	CauseUser NotRunCause = "user"
	// CauseTargetLacks: the target lacks a capability that the case needs. Its result is notSupported.
	CauseTargetLacks NotRunCause = "unsupported"
	// CausePath: a later stage of the upgrade path makes what the scenario needs.
	CausePath NotRunCause = "path"
)

// NotRun is a scenario that was not to be run on a cell.
type NotRun struct {
	Scenario string      `json:"scenario"`
	Cause    NotRunCause `json:"cause"`
	// Why says it in words, for example "requires Kubernetes >=1.36, this is 1.35".
	Why string `json:"why"`
}

// Counts are the results of one level on one cell.
type Counts struct {
	Passed int `json:"passed"`
	// Failed leaves out those that KnownFailing counts.
	Failed int `json:"failed"`
	// KnownFailing failed for the reason that the known-failing list states.
	KnownFailing  int `json:"knownFailing"`
	Invalid       int `json:"invalid"`
	NotSupported  int `json:"notSupported"`
	Skipped       int `json:"skipped"`       // results that say so, and scenarios left out by the user
	NotApplicable int `json:"notApplicable"` // scenarios for another version or gate state
}

// Executed is how many scenarios were run to an end, whatever the end.
func (c Counts) Executed() int { return c.Passed + c.Failed + c.KnownFailing + c.Invalid }

// Finding is a divergence scenario on one cell: what the document says beside what was seen.
type Finding struct {
	Scenario   string   `json:"scenario"`
	Cell       string   `json:"cell"`
	Source     string   `json:"source"`     // the document and section
	Documented string   `json:"documented"` // what the document says, in its words
	Seen       []string `json:"seen"`       // what the server did, a line per request
	// Verdict is passed where the server diverges as the scenario says, failed where it does something else.
	Verdict verdicts.Verdict `json:"verdict"`
}

// Levels lists the levels in the order they are shown.
func Levels() []scenarios.Level {
	return []scenarios.Level{scenarios.Core, scenarios.Extended, scenarios.Divergence}
}

// Executed reports whether a verdict is that of a case that was run to an end, whatever the end.
func Executed(v verdicts.Verdict) bool {
	return v == verdicts.Passed || v == verdicts.Failed || v == verdicts.Invalid
}

// Load says how much ran at once, and the memory that it took.
func (r *ConformanceReport) Load() string {
	text := Plural(max(1, r.Parallel), "cell") + " at once"
	if r.PeakMemoryBytes > 0 {
		text += fmt.Sprintf(", peak memory %d MiB", r.PeakMemoryBytes>>20)
	}
	return text
}
