package verdicts

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// kubectlAsBob returns listAsBob as the only request of a kubectl command.
func kubectlAsBob() (*scenarios.Scenario, *Evidence) {
	s, e := listAsBob(), newEvidence()
	zero := 0
	st := s.Steps[0]
	s.Steps[0] = scenarios.Step{
		Kubectl: &scenarios.Kubectl{By: st.Request.By, Args: []string{"get", "pods", "--as=" + st.Request.Impersonate.User}},
		ExpectClient: &scenarios.ClientExpect{
			ExitCode: &zero, Stdout: []string{"web"}, Stderr: []string{},
			Requests: []scenarios.ClientRequest{{Method: "GET", Path: "/api/v1/pods", Expect: *st.Expect}},
		},
	}
	o := e.Steps[0]
	o.Request.Method, o.Request.URL = "GET", "/api/v1/pods"
	o.Audit = json.RawMessage(strings.Replace(string(o.Audit), "?resourceVersion=0", "", 1))
	e.Steps[0] = Observation{Client: &ClientRun{Command: "kubectl get pods", Stdout: "NAME\nweb\n"}, Requests: []Observation{o}}
	return s, e
}

func TestJudgeClient(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observation)
		field  string
	}{
		"as wanted":         {func(*Observation) {}, ""},
		"exit code":         {func(o *Observation) { o.Client.ExitCode = 1 }, "exitCode"},
		"text is missing":   {func(o *Observation) { o.Client.Stdout = "" }, "stdout[0]"},
		"text is unwanted":  {func(o *Observation) { o.Client.Stderr = "Warning" }, "stderr"},
		"another request":   {func(o *Observation) { o.Requests[0].Request.URL = "/api" }, "requests"},
		"one request more":  {func(o *Observation) { o.Requests = append(o.Requests, o.Requests[0]) }, "requests"},
		"no request":        {func(o *Observation) { o.Requests = nil }, "requests"},
		"code of a request": {func(o *Observation) { o.Requests[0].Response.Code = 201 }, "requests[0].code"},
		"a stray review":    {func(o *Observation) { o.Requests[0].Reviews[0].Point = Back }, "requests[0].reviews (at the end of the chain)"},
		"review of a request": {func(o *Observation) { o.Requests[0].Reviews[1].Spec.ResourceAttributes.Name = "carol" },
			"requests[0].reviews[1].name"},
	} {
		s, e := kubectlAsBob()
		test.change(&e.Steps[0])
		r := Judge(s, e)
		switch {
		case test.field == "" && r.Verdict != Passed:
			t.Errorf("%s: %s: %s", name, r.Verdict, r.Reason)
		case test.field != "" &&
			(len(r.Differences) == 0 || r.Differences[0].Field != test.field):
			t.Errorf("%s: %s %v, want a difference in %s", name, r.Verdict, r.Differences, test.field)
		}
	}
}

func TestJudgeClientInvalid(t *testing.T) {
	for name, change := range map[string]func(*Observation){
		"no client":                   func(o *Observation) { o.Client = nil },
		"a request without its audit": func(o *Observation) { o.Requests[0].Audit = nil },
	} {
		s, e := kubectlAsBob()
		change(&e.Steps[0])
		if r := Judge(s, e); r.Verdict != Invalid {
			t.Errorf("%s: %s: %s", name, r.Verdict, r.Reason)
		}
	}
}

func TestClientBehaviour(t *testing.T) {
	_, e := kubectlAsBob()
	got := strings.Join(Behaviour(e), "\n")
	for _, want := range []string{"kubectl get pods: exit code 0", "GET /api/v1/pods", "impersonate:user-info users"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}
