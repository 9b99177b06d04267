package verdicts

import (
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// TestRequestMayBeTooLarge judges answers to a request that the HTTP server may refuse. If it refused, nobody may have seen the
// request; every other refusal is a failure.
func TestRequestMayBeTooLarge(t *testing.T) {
	refuse := func(e *Evidence) {
		o := &e.Steps[0]
		o.Response = Response{Code: codeHeadersTooLarge, Body: "431 Request Header Fields Too Large"}
		o.Reviews, o.Audit, o.Metrics = []Review{}, nil, []MetricSample{}
	}
	for name, test := range map[string]struct {
		orTooLarge bool
		change     func(*Evidence)
		want       Verdict
	}{
		"allowed":                     {true, func(*Evidence) {}, Passed},
		"refused":                     {true, refuse, Passed},
		"refused, which may not be":   {false, refuse, Failed},
		"refused after it was judged": {true, func(e *Evidence) { reviews := e.Steps[0].Reviews; refuse(e); e.Steps[0].Reviews = reviews }, Failed},
		"forbidden":                   {true, func(e *Evidence) { e.Steps[0].Response.Code = 403 }, Failed},
	} {
		s, e := listAsBob(), newEvidence()
		s.Steps[0].Expect.OrTooLarge = test.orTooLarge
		test.change(e)
		if r := Judge(s, e); r.Verdict != test.want {
			t.Errorf("%s: got %s (%s), want %s", name, r.Verdict, r.Reason, test.want)
		}
	}
}

func TestClientRequestMayBeTooLarge(t *testing.T) {
	want := scenarios.ClientExpect{ExitCode: new(0), Stdout: []string{"yes"}, Requests: []scenarios.ClientRequest{
		{Expect: scenarios.Expect{Outcome: scenarios.Allowed, OrTooLarge: true}},
	}}
	if got := want.Answered([]int{200}); *got.ExitCode != 0 || got.Stdout == nil {
		t.Errorf("answered: %+v", got)
	}
	if got := want.Answered([]int{codeHeadersTooLarge}); *got.ExitCode != 1 || got.Stdout != nil {
		t.Errorf("refused: %+v", got)
	}
	if got := want.Answered(nil); *got.ExitCode != 0 {
		t.Errorf("not sent: %+v", got)
	}
}
