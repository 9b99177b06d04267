package verdicts

import "github.com/authzconf/authzconf/scenarios"

// Verdict is the judgement of one scenario on one cell.
type Verdict string

const (
	// Passed: everything that was expected was looked at and seen.
	Passed Verdict = "passed"
	// Failed: something else was seen.
	Failed Verdict = "failed"
	// NotSupported: the target lacks a capability; Reason names it.
	NotSupported Verdict = "notSupported"
	// Skipped: the user said so.
	Skipped Verdict = "skipped"
	// Invalid: the harness or the environment broke; nothing is known.
	Invalid Verdict = "invalid"
)

// Blame is whose fault a failed or invalid verdict is.
type Blame string

const (
	// BlameAuthorizer: a review was decided otherwise than the grants say.
	BlameAuthorizer Blame = "authorizer"
	// BlameAPIServer: the reviews were decided as the grants say, and the control run saw the same; so the API
	// server does otherwise than the scenario says.
	BlameAPIServer Blame = "apiServer"
	// BlameHarness: authzconf itself broke.
	BlameHarness Blame = "harness"
	// BlameEnvironment: a process died, or two runs of the same did not agree.
	BlameEnvironment Blame = "environment"
)

// Result is the verdict of one scenario on one cell.
type Result struct {
	Scenario string          `json:"scenario"`
	Level    scenarios.Level `json:"level"`
	Cell     string          `json:"cell"`
	Verdict  Verdict         `json:"verdict"`
	// Reason says in one line why a verdict is not passed.
	Reason string `json:"reason,omitempty"`
	Blame  Blame  `json:"blame,omitempty"`
	// Differences are all that was seen otherwise than expected.
	Differences []Difference `json:"differences,omitempty"`
	// NotJudged names expectations that the target cannot show, for example "metrics".
	NotJudged []string `json:"notJudged,omitempty"`
	// Judged is the number of expectations that were compared. A scenario in which nothing was compared is not
	// passed.
	Judged int `json:"judged"`
	// KnownFailing is the stated reason of the known-failing entry that this result matches.
	KnownFailing string `json:"knownFailing,omitempty"`
}

// Difference is one expectation that was not met.
type Difference struct {
	// Step is the index of the step, from 0.
	Step int `json:"step"`
	// Field is the path of the expectation, for example "reviews[1].name".
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}
