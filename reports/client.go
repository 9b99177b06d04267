package reports

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// clientSteps show a run of a client: the command with what became of it, then each of its requests as a request
// step is shown.
func clientSteps(i int, bound *scenarios.Scenario, r verdicts.Result, e *verdicts.Evidence, o *verdicts.Observation) []stepView {
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
	v.Checks = clientChecks(i, st.ExpectClient, r, e)
	views := []stepView{v}
	for n := range o.Requests {
		one := stepView{Number: i, Request: true}
		if n < len(st.ExpectClient.Requests) {
			one = newStep(i, st.Kubectl.Step(st.ExpectClient.Requests[n]), bound, resultOf(r, n), e, &o.Requests[n])
		} else {
			one.answer(&o.Requests[n])
		}
		one.Title = fmt.Sprintf("request %d of the client", n)
		views = append(views, one)
	}
	return views
}

// clientChecks are the expectations about the client itself. Those about its requests stand with each of them.
func clientChecks(step int, want *scenarios.ClientExpect, r verdicts.Result, e *verdicts.Evidence) []checkView {
	c := checker{result: r, step: step, has: e.Capabilities}
	if want.ExitCode != nil {
		c.row("exitCode", strconv.Itoa(*want.ExitCode), "")
	}
	for _, out := range []struct {
		field string
		texts []string
	}{{"stdout", want.Stdout}, {"stderr", want.Stderr}} {
		if out.texts != nil && len(out.texts) == 0 {
			c.row(out.field, "nothing", "")
		}
		for n, text := range out.texts {
			c.row(fmt.Sprintf("%s[%d]", out.field, n), text, "")
		}
	}
	var lines []string
	for _, q := range want.Requests {
		lines = append(lines, q.Method+" "+q.Path)
	}
	c.row("requests", orWord(strings.Join(lines, "; "), "none"), "")
	return c.rows
}

// resultOf is what a result says of one request of a client, in the terms of a request step.
func resultOf(r verdicts.Result, n int) verdicts.Result {
	all := r.Differences
	r.Differences = nil
	for _, d := range all {
		if field, ok := strings.CutPrefix(d.Field, verdicts.ClientField(n)); ok {
			d.Field = field
			r.Differences = append(r.Differences, d)
		}
	}
	return r
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
