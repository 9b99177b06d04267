package verdicts

import (
	"fmt"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// These are the times by which a request may be late before a wrong answer is no longer the API server's fault. A
// scenario that waits is about windows of ten seconds, and its requests come within a second of their ends; one that
// does not wait may still rely on what the API server remembers for ten seconds.
const (
	maxDelayWithWaits = 500 * time.Millisecond
	maxDelay          = 5 * time.Second
)

// findDelay returns by how much the request of a failed result was late, or "" if it was not. A busy machine answers
// late, and then the time for which an API server remembers something may be over before the scenario asks again. The
// delay is counted from the first request to the first difference, without the scenario's waits.
func findDelay(s *scenarios.Scenario, e *Evidence, r Result) string {
	if r.Verdict != Failed || len(r.Differences) == 0 || len(e.Steps) == 0 {
		return ""
	}
	first, failed := &e.Steps[0], r.Differences[0].Step
	for i := range e.Steps {
		if e.Steps[i].Step != failed {
			continue
		}
		tolerance := maxDelay
		waits := seq.Sum(s.Steps[first.Step:failed], func(st scenarios.Step) time.Duration { return time.Duration(st.Wait) })
		if waits > 0 {
			tolerance = maxDelayWithWaits
		}
		if delay := e.Steps[i].lastWorkedOn().Sub(first.Sent) - waits; delay > tolerance {
			return fmt.Sprintf(
				"the API server came to step %d %s behind its time, more than the %s that the scenario leaves",
				failed,
				delay.Round(time.Millisecond),
				tolerance,
			)
		}
	}
	return ""
}

// lastWorkedOn returns the latest time at which the API server is known to have worked on the request: when its last
// access review arrived. A busy server may start on a request long after it was sent, and meanwhile it forgets by its
// own clock.
func (o *Observation) lastWorkedOn() time.Time {
	at := o.Sent
	for _, r := range o.Reviews {
		if r.At.After(at) {
			at = r.At
		}
	}
	return at
}

// judgeControl returns the result of a scenario whose requests came too late. It is the result of the control run,
// unless that was late too or broke: then nothing is known. delay describes the first delay.
func judgeControl(s *scenarios.Scenario, e *Evidence, delay string) Result {
	r := judgeOnce(s, e.Control)
	switch controlDelay := findDelay(s, e.Control, r); {
	case r.Verdict == Passed:
		r.Reason = delay + "; the control run, which was in time, is judged"
	case r.Verdict == Failed && controlDelay == "":
		r.Blame, r.Reason = blame(s, e.Control, r)
		r.Reason += "; the first run is not judged: " + delay
	default:
		r = Result{Scenario: r.Scenario, Level: r.Level, Verdict: Invalid, Blame: BlameEnvironment}
		r.Reason = delay + "; the control run is not judged either: " + textIf(controlDelay != "", controlDelay, r.Reason)
	}
	r.Cell = e.Cell.Name
	return r
}
