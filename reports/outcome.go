package reports

import (
	"slices"

	"github.com/authzconf/authzconf/verdicts"
)

// These are the exit codes of a run. A report never gives 2, which is bad usage or input.
const (
	ExitPassed  = 0
	ExitFailed  = 1
	ExitInvalid = 3
)

// Outcome is the overall judgement with its reasons.
type Outcome struct {
	// Result is passed (everything that had to be shown was run and passed), failed (something was seen otherwise than
	// it has to be) or invalid (after the run it is unknown whether the implementation conforms).
	Result   verdicts.Verdict `json:"result"`
	ExitCode int              `json:"exitCode"` // the exit code of authzconf run
	// Reasons say why the result is not passed, beginning with those that decided it.
	Reasons []string `json:"reasons,omitempty"`
	// NotCovered says, with one line for each reason, about how many scenarios nothing is known because no target can
	// show them.
	NotCovered []string `json:"notCovered,omitempty"`
	// Notes say what a reader of "passed" should know: known failures, what was left out, and what the target could not
	// show.
	Notes []string `json:"notes,omitempty"`
}

// Line returns the outcome with what it does not cover.
func (o Outcome) Line() string {
	line := string(o.Result)
	for _, what := range o.NotCovered {
		line += "; " + what + ": not judged"
	}
	return line
}

type conclusion struct {
	unknown []string // required and not known, which makes the outcome invalid
	failed  []string
	minor   []string // not required and not known
	notes   []string
	// certain means that something failed which nothing unknown can explain.
	certain bool
}

func (c *conclusion) outcome() Outcome {
	o := Outcome{Notes: c.notes, Reasons: slices.Concat(c.unknown, c.failed, c.minor)}
	if c.certain {
		o.Reasons = slices.Concat(c.failed, c.unknown, c.minor)
	}
	hasFailed := len(c.unknown) == 0 && len(c.failed) > 0
	switch {
	case c.certain, hasFailed:
		o.Result, o.ExitCode = verdicts.Failed, ExitFailed
	case len(o.Reasons) > 0:
		o.Result, o.ExitCode = verdicts.Invalid, ExitInvalid
	default:
		o.Result, o.ExitCode = verdicts.Passed, ExitPassed
	}
	return o
}

// exampleLength is how much of an example's reason is shown. A whole transcript would hide the other reasons.
const exampleLength = 200
