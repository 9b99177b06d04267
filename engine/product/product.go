// Package product is what all products have in common: a plan that says what will be judged, a run that records, and a
// judgement that follows from the record alone. Whatever starts a product (the command line or Ginkgo) calls Execute, and
// whoever doubts a report calls Verify.
package product

import (
	"context"
	"io"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// Case is one thing that a product judges.
type Case struct {
	// ID is unique in a plan: the group and the name, separated by a slash.
	ID string `json:"id"`
	// Group is the cell, stage, level or comparison that the case is judged on.
	Group string `json:"group"`
	// Name is unique in the group, for example the ID of a scenario.
	Name string `json:"name"`
	// Level says how much depends on the case: core if it is empty.
	Level scenarios.Level `json:"level,omitempty"`
	// Labels are what the case can be selected by, in the words of Kubernetes' own end-to-end tests.
	Labels []string `json:"labels,omitempty"`
	// NotRun says why the plan does not run the case. It is nil for a case that is run.
	NotRun *NotRun `json:"notRun,omitempty"`
}

// Unavailable is an error of a plan that is not for the user to mend: something that has to be asked does not answer.
type Unavailable struct{ Err error }

// Error returns what is not available.
func (e *Unavailable) Error() string { return e.Err.Error() }

// Unwrap returns the error as it was.
func (e *Unavailable) Unwrap() error { return e.Err }

// NotRun is the reason why a case is not run.
type NotRun struct {
	Cause reports.NotRunCause `json:"cause"`
	// Why says it in words, for example "requires Kubernetes >=1.36, this is 1.35".
	Why string `json:"why"`
}

// NewCase returns a case that is run.
func NewCase(group, name string, level scenarios.Level, labels ...string) Case {
	return Case{ID: group + "/" + name, Group: group, Name: name, Level: level, Labels: labels}
}

// Plan is what will be judged: which case runs where, and why the others do not.
//
// It follows from flags and the files that they name: the same command line gives the same
// plan, which is how Verify knows that nothing was left out.
type Plan interface {
	// Cases returns all cases in the order of the report, those that are not run included.
	Cases() []Case
	// Select leaves out the cases for which leaveOut returns a reason. A group in which nothing is left does not start.
	Select(leaveOut func(Case) (why string))
	// Run starts what has to be started, sends requests, and records what it observes. It judges nothing. It calls
	// Observer.Done when the evidence of a case is complete, from any goroutine. When ctx ends, it records what it has
	// and returns nil: Judge finds that the rest is missing. A *usage.Error is for the user to mend; any other error
	// means that there is nothing to report.
	Run(ctx context.Context, log *record.Log, observer Observer) error
	// Judge returns the verdict on a case that is run. It is pure: it depends on the plan and the evidence alone. A case
	// without evidence is invalid.
	Judge(id string, evidence record.View) reports.Result
	// Conclude makes the report of the results, which are those of the cases that are run, in the order of Cases. It
	// fills in Subject, Groups, Figures, Sections and the reasons of the Outcome; Execute and Verify do the rest. It is
	// pure, too.
	Conclude(results []reports.Result, evidence record.View) (*reports.Report, error)
}

// Describer is a Plan that has more to say under --dry-run than its cases.
type Describer interface {
	Describe(w io.Writer) error
}

// GroupDescriber is a Plan that says more of a group than its name, such as the version and the gate of a cell.
type GroupDescriber interface {
	DescribeGroup(name string) string
}

// Observer is told of the progress of a run. Its functions may be called from several goroutines.
type Observer struct {
	// Say is called with a line about the run as a whole, such as a control plane being ready.
	Say func(text string)
	// Status is called with what a display shows until the next call, such as the rate of a storm.
	Status func(text string)
	// Done is called with the ID of a case whose evidence is complete.
	Done func(id string)
}

// header is the first entry of every record: how the run was called, and what it planned.
type header struct {
	Product      string    `json:"product"`
	SuiteVersion string    `json:"suiteVersion"`
	Command      []string  `json:"command"`
	Seed         int64     `json:"seed"`
	Started      time.Time `json:"started"`
	Cases        []Case    `json:"cases"`
	// Inputs are the files that the command line names, by the paths that it gives, and facts, by their names; see Invocation.
	Inputs map[string]string `json:"inputs,omitempty"`
}

// ending is the last entry of every record.
type ending struct {
	Finished time.Time `json:"finished"`
	// Interrupted says why the run ended early. It is empty for one that did not.
	Interrupted string `json:"interrupted,omitempty"`
}

// The keys of these entries.
const (
	headerKey = "run"
	endingKey = "end"
)
