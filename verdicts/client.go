package verdicts

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// judgeClient judges a run of a client: how it ended, what it printed, and each of its requests as a request step is
// judged. It returns a problem of the harness, or "".
func (j *judge) judgeClient(i int, st *scenarios.Step, o *Observation) (problem string) {
	if o.Client == nil {
		return "there is no observation of the client"
	}
	v := &stepJudge{judge: j, index: i}
	want := st.ExpectClient.Answered(seq.Map(o.Requests, func(o Observation) int { return o.Response.Code }))
	if want.ExitCode != nil {
		v.compare("exitCode", strconv.Itoa(*want.ExitCode), strconv.Itoa(o.Client.ExitCode))
	}
	v.checkOutput("stdout", want.Stdout, o.Client.Stdout)
	v.checkOutput("stderr", want.Stderr, o.Client.Stderr)
	v.compare("requests",
		renderLines(want.Requests, func(r scenarios.ClientRequest) string { return r.Method + " " + r.Path }),
		renderLines(o.Requests, func(o Observation) string { return o.Request.Method + " " + o.Request.URL }))
	for n, r := range want.Requests {
		if n >= len(o.Requests) {
			break
		}
		if problem := j.judgeClientRequest(n, i, st.Kubectl.Step(r), &o.Requests[n]); problem != "" {
			return fmt.Sprintf("request %d of the client: %s", n, problem)
		}
	}
	return ""
}

// judgeClientRequest judges one request of a client. The fields of its differences name the request.
func (j *judge) judgeClientRequest(n, step int, st *scenarios.Step, o *Observation) (problem string) {
	single := &judge{s: j.s, e: j.e}
	problem = single.judgeRequest(step, st, o)
	j.result.Judged += single.result.Judged
	j.addNotJudged(single.result.NotJudged...)
	inRequest := func(d Difference) Difference {
		d.Field = ClientField(n) + d.Field
		return d
	}
	j.result.Differences = append(j.result.Differences, seq.Map(single.result.Differences, inRequest)...)
	j.matches = append(j.matches, seq.Map(single.matches, inRequest)...)
	return problem
}

// ClientField returns what the fields of differences in a client's n-th request begin with.
func ClientField(n int) string { return fmt.Sprintf("requests[%d].", n) }

// checkOutput demands that what a client printed contains the expected texts, or is empty where the scenario says so.
//
// Source: the scenario.
func (v *stepJudge) checkOutput(stream string, want []string, got string) {
	if want != nil && len(want) == 0 {
		v.compare(stream, "nothing", cmp.Or(got, "nothing"))
	}
	for n, text := range want {
		printed := text
		if !strings.Contains(got, text) {
			printed = cmp.Or(got, "nothing")
		}
		v.compare(fmt.Sprintf("%s[%d]", stream, n), text, printed)
	}
}

// Requests returns the observations of all single requests, including those that clients sent.
func Requests(steps []Observation) (all []Observation) {
	for _, o := range steps {
		if o.Client == nil {
			all = append(all, o)
			continue
		}
		for _, r := range o.Requests {
			r.Step = o.Step
			all = append(all, r)
		}
	}
	return all
}

// clientBehaviour describes what a client and the API server did. It leaves out what the client printed, because that
// contains times.
func clientBehaviour(o *Observation) []string {
	lines := []string{fmt.Sprintf("%s: exit code %d", o.Client.Command, o.Client.ExitCode)}
	for i := range o.Requests {
		lines = append(lines, stepBehaviour(&o.Requests[i])...)
	}
	return lines
}
