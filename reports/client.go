package reports

import (
	"fmt"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// clientSteps show a run of a client: the command with what became of it, then each of its requests as a request
// step is shown.
func clientSteps(i int, bound *scenarios.Scenario, met []verdicts.Difference, r verdicts.Result, e *verdicts.Evidence, o *verdicts.Observation) []stepView {
	st := &bound.Steps[i]
	v := stepView{Number: i, Title: stepTitle(st, bound), Request: true}
	if o == nil || o.Client == nil {
		v.Title += ": was not run"
		return []stepView{v}
	}
	v.Line, v.Code = o.Client.Command, exitText(o.Client)
	v.Headers = []headerView{{"requestor", o.Request.Requestor}, {"client", o.Client.UserAgent}}
	v.Message = excerpt(o.Client.Stderr + o.Client.Stdout)
	v.Took = took(o.Sent, o.Answered)
	v.Checks = checks(i, "", met, r.Differences)
	views := []stepView{v}
	for n := range o.Requests {
		one := stepView{Number: i, Request: true}
		if n < len(st.ExpectClient.Requests) {
			one = newStep(i, verdicts.ClientField(n), st.Kubectl.Step(st.ExpectClient.Requests[n]), bound, met, r, e, &o.Requests[n])
		} else {
			one.answer(&o.Requests[n])
		}
		one.Title = fmt.Sprintf("request %d of the client", n)
		views = append(views, one)
	}
	return views
}

func exitText(c *verdicts.ClientRun) string { return fmt.Sprintf("exit code %d", c.ExitCode) }

// observedLines tell a step in a line, and each request of a client in one more.
func observedLines(o *verdicts.Observation) []string {
	if o.Client == nil {
		return []string{requestLine(o) + ": " + answerLine(o)}
	}
	lines := []string{o.Request.Requestor + ": " + o.Client.Command + ": " + exitText(o.Client)}
	for i := range o.Requests {
		lines = append(lines, requestLine(&o.Requests[i])+": "+answerLine(&o.Requests[i]))
	}
	return lines
}
