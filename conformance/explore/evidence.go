package explore

import (
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// batchEvidence is what was seen of a batch, and of the single cases that were run because of it.
type batchEvidence struct {
	Cases []*verdicts.Evidence `json:"cases"`
	// Arrived is how many reviews arrived meanwhile, those of no case among them.
	Arrived int `json:"arrived"`
	// Metrics are the increases over the whole batch; nil where the target has none.
	Metrics []verdicts.MetricSample `json:"metrics"`
	// Alone are the cases that were run again alone, in the order in which they were.
	Alone []*verdicts.Evidence `json:"alone,omitempty"`
	// Again are the cases of a crowd that was sent once more, for one differed.
	Again []*verdicts.Evidence `json:"again,omitempty"`
	// Searches are how far the searches for smaller cases went, in the order in which they were made.
	Searches []search `json:"searches,omitempty"`
	// Left is how many cases the user did not let run again, for he ended the run.
	Left int `json:"left,omitempty"`
}

// search is how far the search for a smaller case went.
type search struct {
	// Runs were made. Ended says that the user ended the search, or its time was over.
	Runs  int  `json:"runs"`
	Ended bool `json:"ended,omitempty"`
}

// sequenceEvidence is what is known of a sequence as a whole.
type sequenceEvidence struct {
	// Target is the control plane; nil if it did not start. Others are what the API servers beside it were, by the names of
	// their cells.
	Target *reports.FoundTarget           `json:"target,omitempty"`
	Others map[string]reports.FoundTarget `json:"others,omitempty"`
	// Problems are what broke, and is not in the evidence of a case.
	Problems []string `json:"problems,omitempty"`
	// Stopped means that there were too many disagreements to go on.
	Stopped bool `json:"stopped,omitempty"`
}

// assertions are what has to be true of everything that is recorded: anything else is a fault of ours.
type assertions struct {
	auditIDs map[string]string // with the scenarios that have them
}

// check asserts that the requests of a case were sent one behind the other, each with an audit ID of its own, and that what
// the recorder decided fits together.
func (a *assertions) check(e *verdicts.Evidence) error {
	var before time.Time
	for i := range e.Steps {
		o := &e.Steps[i]
		if id := o.Response.AuditID; id != "" {
			if other := a.auditIDs[id]; other != "" {
				return fmt.Errorf("%s: its audit ID %s is also one of %s", e.Scenario, id, other)
			}
			a.auditIDs[id] = e.Scenario
		}
		if o.Sent.Before(before) || o.Answered.Before(o.Sent) {
			return fmt.Errorf("%s: step %d: it was not sent behind the one before, and answered behind that", e.Scenario, o.Step)
		}
		if err := checkDecisions(o.Reviews); err != nil {
			return fmt.Errorf("%s: step %d: %w", e.Scenario, o.Step, err)
		}
		before = o.Answered
	}
	return nil
}

// checkDecisions asserts that each review was decided once: at the front, or, if that had no opinion, behind it.
func checkDecisions(reviews []verdicts.Review) error {
	decisions, stray := verdicts.DeriveDecisions(reviews) // in the order of those at the front; one that went on got no opinion there
	if len(stray) > 0 {
		return fmt.Errorf("%d reviews at the back were not at the front", len(stray))
	}
	for i, r := range reviews {
		isFront, goesOn := r.Point == verdicts.Front, false
		if isFront {
			goesOn, decisions = decisions[0].Decision == scenarios.NoOpinion, decisions[1:]
		}
		isKnown := slices.Contains([]scenarios.Decision{scenarios.Allow, scenarios.NoOpinion}, r.Decision)
		isDecidedTwice := goesOn && r.Decision != scenarios.NoOpinion
		if isFront != isKnown || isDecidedTwice {
			return fmt.Errorf("review %d, at %q, was decided %q", i, r.Point, r.Decision)
		}
	}
	return nil
}
