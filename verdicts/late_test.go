package verdicts

import (
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// TestLateRequestIsNotAPIServerFault checks that the API server has not failed if a busy machine sent a request after its window had closed. A
// wrong answer in time is a failure, even if another run was late.
func TestLateRequestIsNotAPIServerFault(t *testing.T) {
	const wait = 8 * time.Second
	twice := func(waits bool) *scenarios.Scenario {
		s := listAsBob()
		if waits {
			s.Steps = append(s.Steps, scenarios.Step{Wait: scenarios.Duration(wait)})
		}
		s.Steps = append(s.Steps, s.Steps[0])
		return s
	}
	// played returns evidence whose second request was sent after the given time. wrong lists which of the two requests
	// were answered wrongly.
	played := func(s *scenarios.Scenario, after time.Duration, wrong ...int) *Evidence {
		e := newEvidence()
		e.Steps = append(e.Steps, newEvidence().Steps[0])
		e.Steps[1].Step = len(s.Steps) - 1
		e.Steps[1].Sent = e.Steps[0].Sent.Add(after)
		for _, i := range wrong {
			e.Steps[i].Response.Code = 404
		}
		return e
	}
	for name, test := range map[string]struct {
		waits          bool
		first, control time.Duration
		wrong, again   []int
		verdict        Verdict
		blame          Blame
		reason         string
	}{
		"late and right":               {waits: true, first: wait + time.Minute, verdict: Passed},
		"in time and wrong":            {waits: true, first: wait + 400*time.Millisecond, control: wait, wrong: []int{1}, verdict: Failed, blame: BlameEnvironment, reason: "the control run passed"},
		"late, the control run passes": {waits: true, first: wait + 600*time.Millisecond, control: wait, wrong: []int{1}, verdict: Passed, reason: "the API server came to step 2 600ms behind its time"},
		"late, the control run fails":  {waits: true, first: wait + 2*time.Second, control: wait, wrong: []int{1}, again: []int{1}, verdict: Failed, blame: BlameAPIServer, reason: "the first run is not judged: the API server came to step 2 2s behind"},
		"late twice":                   {waits: true, first: wait + 2*time.Second, control: wait + 3*time.Second, wrong: []int{1}, again: []int{1}, verdict: Invalid, blame: BlameEnvironment, reason: "not judged either: the API server came to step 2 3s behind"},
		"wrong before it was late":     {waits: true, first: wait + 2*time.Second, control: wait, wrong: []int{0, 1}, again: []int{0, 1}, verdict: Failed, blame: BlameAPIServer, reason: "the control run saw the same"},
		"no waits, a slow second":      {first: time.Second, control: time.Second, wrong: []int{1}, again: []int{1}, verdict: Failed, blame: BlameAPIServer, reason: "the control run saw the same"},
		"no waits, six seconds":        {first: 6 * time.Second, control: 6 * time.Second, wrong: []int{1}, again: []int{1}, verdict: Invalid, blame: BlameEnvironment, reason: "more than the 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := twice(test.waits)
			e := played(s, test.first, test.wrong...)
			e.Control = played(s, test.control, test.again...)
			r := Judge(s, e)
			if r.Verdict != test.verdict || r.Blame != test.blame || !strings.Contains(r.Reason, test.reason) {
				t.Errorf("%s, blamed on %q: %s", r.Verdict, r.Blame, r.Reason)
			}
		})
	}
	t.Run("sent in time, and the server was late", func(t *testing.T) {
		s := twice(true)
		e := played(s, wait, 1)
		e.Control = played(s, wait)
		o := &e.Steps[1]
		for i := range o.Reviews {
			o.Reviews[i].At = o.Sent.Add(time.Second)
		}
		if r := Judge(s, e); r.Verdict != Passed || !strings.Contains(r.Reason, "came to step 2 1s behind its time") {
			t.Errorf("%s, blamed on %q: %s", r.Verdict, r.Blame, r.Reason)
		}
	})
	s := twice(true)
	if r := Judge(s, played(s, wait+time.Minute, 1)); r.Verdict != Failed {
		t.Errorf("late, without a control run: %s", r.Verdict)
	}
}
