package verdicts

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// client judges a run of a client: how it ended, what it printed, and each of its requests as a request step is judged.
func (j *judge) client(i int, st *scenarios.Step, o *Observation) (problem string) {
	if o.Client == nil {
		return "there is no observation of the client"
	}
	v := &stepJudge{judge: j, index: i}
	want := st.ExpectClient
	if want.ExitCode != nil {
		v.compare("exitCode", strconv.Itoa(*want.ExitCode), strconv.Itoa(o.Client.ExitCode))
	}
	v.output("stdout", want.Stdout, o.Client.Stdout)
	v.output("stderr", want.Stderr, o.Client.Stderr)
	v.compare("requests",
		lines(want.Requests, func(r scenarios.ClientRequest) string { return r.Method + " " + r.Path }),
		lines(o.Requests, func(o Observation) string { return o.Request.Method + " " + o.Request.URL }))
	for n, r := range want.Requests {
		if n >= len(o.Requests) {
			break
		}
		if problem := j.clientRequest(n, i, st.Kubectl.Step(r), &o.Requests[n]); problem != "" {
			return fmt.Sprintf("request %d of the client: %s", n, problem)
		}
	}
	return ""
}

// clientRequest judges one request of a client; the fields of its differences say which.
func (j *judge) clientRequest(n, step int, st *scenarios.Step, o *Observation) (problem string) {
	one := &judge{s: j.s, e: j.e}
	problem = one.step(step, st, o)
	j.result.Judged += one.result.Judged
	j.notJudged(one.result.NotJudged...)
	inRequest := func(d Difference) Difference {
		d.Field = ClientField(n) + d.Field
		return d
	}
	j.result.Differences = append(j.result.Differences, seq.Map(one.result.Differences, inRequest)...)
	j.met = append(j.met, seq.Map(one.met, inRequest)...)
	return problem
}

// ClientField is what the fields of differences in a client's n-th request begin with.
func ClientField(n int) string { return fmt.Sprintf("requests[%d].", n) }

// output judges what a client printed: the wanted texts are part of it, or there is none.
func (v *stepJudge) output(stream string, want []string, got string) {
	if want != nil && len(want) == 0 {
		v.compare(stream, "nothing", cmp.Or(got, "nothing"))
	}
	for n, text := range want {
		seen := text
		if !strings.Contains(got, text) {
			seen = cmp.Or(got, "nothing")
		}
		v.compare(fmt.Sprintf("%s[%d]", stream, n), text, seen)
	}
}

// Requests are the observations of single requests, those of clients included.
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

// clientBehaviour is what a client and the API server did. What the client printed has times in it.
func clientBehaviour(o *Observation) []string {
	lines := []string{fmt.Sprintf("%s: exit code %d", o.Client.Command, o.Client.ExitCode)}
	for i := range o.Requests {
		lines = append(lines, stepBehaviour(&o.Requests[i])...)
	}
	return lines
}
