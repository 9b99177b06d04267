package reports

import (
	"fmt"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// These are the API type of report.yaml.
const (
	ReportVersion = apiGroup + "/v1alpha3"
	ReportKind    = "Report"
)

// Report is the result of one run of any product. It follows from the record of the run alone (see engine/product), so
// no field can be set to "passed" by a run.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Product is the product that judged, such as conformance, upgrade or certify.
	Product string `json:"product"`
	// SuiteVersion is the version of authzconf.
	SuiteVersion string `json:"suiteVersion"`
	// Command is the command line that was given, program name included. The plan of the run follows from it.
	Command []string `json:"command"`
	// Seed is what names and random choices were made from.
	Seed int64 `json:"seed"`
	// Started and Finished are when the run began and ended.
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Subject is what was judged.
	Subject Subject `json:"subject"`
	// Outcome is the overall judgement.
	Outcome Outcome `json:"outcome"`
	// Require are the levels whose cases must all have been judged.
	Require []scenarios.Level `json:"require,omitempty"`
	// Groups are the cells, stages, levels or comparisons of the run, with the cases that were judged in each.
	Groups []Group `json:"groups"`
	// KnownFailing are the entries of the known-failing list, with what became of them.
	KnownFailing []KnownFailingState `json:"knownFailing,omitempty"`
	// Answers is what the run was made to find out. Each row is a question with its answer and its grounds. It comes
	// first on the page, and in the terminal it replaces the figures.
	Answers *Table `json:"answers,omitempty"`
	// Figures are single numbers worth quoting, such as a median time.
	Figures []Figure `json:"figures,omitempty"`
	// Sections are what a product has to say in addition to verdicts: tables and plots as data.
	Sections []Section `json:"sections,omitempty"`
	// Record names the evidence from which all this follows.
	Record record.Head `json:"record"`
	// Pages are the SHA-256 digests of the pages that were made from this report, such as report.html.
	Pages map[string]string `json:"pages,omitempty"`

	reasons reasons
}

// Subject is what a report is about.
type Subject struct {
	// Name is, for example, kube-apiserver, or the vendor's name of the product.
	Name string `json:"name"`
	// Vendor, Version and Contact are what the user stated. They are empty if nobody did.
	Vendor  string `json:"vendor,omitempty"`
	Version string `json:"version,omitempty"`
	Contact string `json:"contact,omitempty"`
	// Provider is what started the control planes: local, kind, existing or another. It is empty if there were none.
	Provider string `json:"provider,omitempty"`
}

// Group is one cell, stage, level or comparison. Its cases were judged on the same thing.
type Group struct {
	// Name is unique in a report, for example "1.37-gate-on".
	Name string `json:"name"`
	// Cell is what was requested, if the group is about a control plane.
	Cell *verdicts.Cell `json:"cell,omitempty"`
	// Target are the facts by which scenarios were selected.
	Target *scenarios.Facts `json:"target,omitempty"`
	// Witness is what the control plane reported about itself.
	Witness *Witness `json:"witness,omitempty"`
	// Facts are further circumstances that a reader should know, such as the length of a stage.
	Facts []Fact `json:"facts,omitempty"`
	// Problem says why nothing in the group could be judged, with the last lines of a log. One problem makes the run
	// invalid.
	Problem string `json:"problem,omitempty"`
	// ReadySeconds is how long the control plane took to start. WallSeconds is how long the group took, including
	// waits.
	ReadySeconds float64 `json:"readySeconds,omitempty"`
	WallSeconds  float64 `json:"wallSeconds,omitempty"`
	// Cases are the verdicts of everything that was to be judged here, including cases that the target does not
	// support.
	Cases []Result `json:"cases"`
	// NotRun are the cases that were not to be judged here, and why.
	NotRun []Omission `json:"notRun,omitempty"`
	// Summary counts verdicts by level. A level without cases is absent.
	Summary map[scenarios.Level]Counts `json:"summary"`
}

// Omission is a case that was not to be judged in a group.
type Omission struct {
	Case  string          `json:"case"`
	Level scenarios.Level `json:"level,omitempty"`
	Cause NotRunCause     `json:"cause"`
	// Why explains that in words, for example "requires Kubernetes >=1.36, this is 1.35".
	Why string `json:"why"`
}

// Fact is a circumstance with its value, both for people.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Result is the verdict on one case.
type Result struct {
	// Case is unique in its group, for example the ID of a scenario.
	Case string `json:"case"`
	// Level says how much depends on the case. If none is stated it is core, so that a product without levels requires
	// all cases.
	Level   scenarios.Level  `json:"level,omitempty"`
	Verdict verdicts.Verdict `json:"verdict"`
	// Reason says in one line why a verdict is not passed.
	Reason string         `json:"reason,omitempty"`
	Blame  verdicts.Blame `json:"blame,omitempty"`
	// Certain means that a failure cannot be explained by anything else that broke: an answer in the name of somebody
	// else.
	Certain bool `json:"certain,omitempty"`
	// Differences are everything that was observed otherwise than expected.
	Differences []verdicts.Difference `json:"differences,omitempty"`
	// Details are further lines that explain the verdict.
	Details []string `json:"details,omitempty"`
	// NotJudged names expectations that the target can't show, for example "metrics".
	NotJudged []string `json:"notJudged,omitempty"`
	// Judged is the number of expectations that were compared. A case in which nothing was compared has not passed.
	Judged int `json:"judged"`
	// KnownFailing is the stated reason of the known-failing entry that this result matches.
	KnownFailing string `json:"knownFailing,omitempty"`
	// Seconds is how long the case took, including waits.
	Seconds float64 `json:"seconds,omitempty"`
	// Evidence are the paths of the files in the report's folder from which the verdict follows.
	Evidence []string `json:"evidence,omitempty"`
	// Tables show what was expected and what was observed. Only cases that did not pass need them.
	Tables []Table `json:"tables,omitempty"`
}

// Describe returns a verdict that is not passed in words, with everything that was observed otherwise than expected.
func (r Result) Describe() string {
	var lines strings.Builder
	lines.WriteString(string(r.Verdict))
	if r.Blame != "" {
		lines.WriteString(" (blame: " + string(r.Blame) + ")")
	}
	lines.WriteString(": " + r.Reason)
	for _, d := range r.Differences {
		_, _ = fmt.Fprintf(&lines, "\nstep %d: %s\n  want %s\n  got  %s", d.Step, d.Field, d.Want, d.Got)
	}
	for _, line := range r.Details {
		lines.WriteString("\n  " + line)
	}
	return lines.String()
}

// Figure is a single number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Unit is, for example, ms or "reviews per request". It is empty for a count.
	Unit string `json:"unit,omitempty"`
}

// Section is a part of a report besides verdicts.
type Section struct {
	// ID names the section in links, for example "divergences".
	ID    string `json:"id"`
	Title string `json:"title"`
	// Text are paragraphs. Text between backticks is code.
	Text   []string          `json:"text,omitempty"`
	Tables []Table           `json:"tables,omitempty"`
	Plots  []statistics.Plot `json:"plots,omitempty"`
}

// Table has a row of texts for each thing that it lists.
type Table struct {
	Title string `json:"title,omitempty"`
	// Columns are the names of the columns, and Numeric are the indices of those that are aligned as numbers.
	Columns []string `json:"columns"`
	Numeric []int    `json:"numeric,omitempty"`
	Rows    []Row    `json:"rows"`
}

// Row is one row of a table.
type Row struct {
	Cells []string `json:"cells"`
	// Verdict colours the row. It is empty for no colour.
	Verdict verdicts.Verdict `json:"verdict,omitempty"`
}

// NewResult returns the verdict on a scenario as a result of the case that is named like the scenario.
func NewResult(v verdicts.Result) Result {
	return Result{
		Case: v.Scenario, Level: v.Level, Verdict: v.Verdict, Reason: v.Reason, Blame: v.Blame,
		Differences: v.Differences, NotJudged: v.NotJudged, Judged: v.Judged, KnownFailing: v.KnownFailing,
	}
}

// NotSupported returns the result of a case that the target can't show.
func NotSupported(name string, level scenarios.Level, why string) Result {
	return Result{Case: name, Level: level, Verdict: verdicts.NotSupported, Reason: why}
}
