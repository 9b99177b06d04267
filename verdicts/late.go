package verdicts

import (
	"fmt"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// How far a request may be behind its time before a wrong answer is no longer held against the API server. What waits
// is about windows of ten seconds, and comes within a second of their ends; what does not wait may still rely on what
// the API server remembers for ten seconds.
const (
	slackOfWaits = 500 * time.Millisecond
	slack        = 5 * time.Second
)

// behind says by how much the request of a failed result came too late, if it did: a busy machine answers late, and then
// the time for which an API server remembers something is over before the scenario asks again. It is counted up to
// the first difference, from the first request, without the scenario's waits.
func behind(s *scenarios.Scenario, e *Evidence, r Result) string {
	if r.Verdict != Failed || len(r.Differences) == 0 || len(e.Steps) == 0 {
		return ""
	}
	first, at := &e.Steps[0], r.Differences[0].Step
	for i := range e.Steps {
		if e.Steps[i].Step != at {
			continue
		}
		may, waits := slack, time.Duration(0)
		for _, st := range s.Steps[first.Step:at] {
			waits += time.Duration(st.Wait)
		}
		if waits > 0 {
			may = slackOfWaits
		}
		if late := e.Steps[i].Sent.Sub(first.Sent) - waits; late > may {
			return fmt.Sprintf("step %d was sent %s behind its time, more than the %s that the scenario leaves", at, late.Round(time.Millisecond), may)
		}
	}
	return ""
}

// inTime is the result of a scenario whose requests came too late: that of its control run, unless that was late, too,
// or broke. Nothing is known then.
func inTime(s *scenarios.Scenario, e *Evidence, late string) Result {
	r := judgeOnce(s, e.Control)
	switch again := behind(s, e.Control, r); {
	case r.Verdict == Passed:
		r.Reason = late + "; the control run, which was in time, is judged"
	case r.Verdict == Failed && again == "":
		r.Blame, r.Reason = blame(s, e.Control, r)
		r.Reason += "; the first run is not judged: " + late
	default:
		r = Result{Scenario: r.Scenario, Level: r.Level, Verdict: Invalid, Blame: BlameEnvironment}
		r.Reason = late + "; the control run is not judged either: " + orElse(again != "", again, r.Reason)
	}
	r.Cell = e.Cell.Name
	return r
}
