package verdicts

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// client judges a run of a client: how it ended, what it printed, and each of its requests as a request step is
// judged.
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
	v.compare("requests", wantedLines(want.Requests), seenLines(o.Requests))
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
	for _, what := range one.result.NotJudged {
		j.notJudged(what)
	}
	j.result.Differences = append(j.result.Differences, inRequest(n, one.result.Differences)...)
	j.met = append(j.met, inRequest(n, one.met)...)
	return problem
}

func inRequest(n int, list []Difference) (out []Difference) {
	for _, d := range list {
		d.Field = ClientField(n) + d.Field
		out = append(out, d)
	}
	return out
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

func wantedLines(want []scenarios.ClientRequest) string {
	var lines []string
	for _, r := range want {
		lines = append(lines, r.Method+" "+r.Path)
	}
	return scenarios.List(lines)
}

func seenLines(got []Observation) string {
	var lines []string
	for _, o := range got {
		lines = append(lines, o.Request.Method+" "+o.Request.URL)
	}
	return scenarios.List(lines)
}

// requests are the observations of single requests, those of clients included.
func requests(steps []Observation) []Observation {
	var all []Observation
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
