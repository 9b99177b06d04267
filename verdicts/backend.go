package verdicts

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// backend judges whom the aggregated API server was told of. Of impersonation it must not be told at all.
func (v *stepJudge) backend() {
	var seen []scenarios.User
	var left, sent []string
	for _, r := range v.o.Backend {
		seen = append(seen, r.User)
		sent = append(sent, r.Method+" "+r.URL)
		if len(r.Impersonation) > 0 {
			left = append(left, fmt.Sprint(r.Impersonation))
		}
	}
	v.compare("backend", RenderUsers(v.expect.Backend), RenderUsers(seen))
	if len(seen) == 1 {
		v.compare("backend (request)", v.o.Request.Method+" "+v.o.Request.URL, sent[0])
	}
	v.compare("backend (impersonation headers)", "none", scenarios.List(left))
}

// RenderUsers lists users on one line.
func RenderUsers(users []scenarios.User) string {
	return lines(users, scenarios.User.Render)
}

func lines[T any](list []T, line func(T) string) string {
	return scenarios.List(scenarios.Each(list, line))
}

// backendBehaviour is what reached the aggregated API server.
func backendBehaviour(o *Observation) []string {
	return scenarios.Each(o.Backend, func(r BackendRequest) string {
		return strings.TrimSpace("backend: " + r.Method + " " + r.URL + " by " + r.User.Render() + " " + scenarios.RenderExtra(r.Impersonation))
	})
}

// around judges what was seen beside the authorization: by admission, by priority and fairness, by an operator.
func (v *stepJudge) around() {
	want, got := v.expect, v.o
	for _, part := range []struct {
		field       string
		asked, seen bool
		judge       func()
	}{
		{"backend", want.Backend != nil, v.has(scenarios.Aggregation), v.backend},
		{"admission", want.Admission != nil, v.has(scenarios.Aggregation), func() {
			v.compare("admission", RenderUsers(want.Admission), RenderUsers(got.Admission))
		}},
		{"flow", want.Flow != nil, got.Response.Flow != nil, func() {
			v.compare("flow", fmt.Sprintf("%+v", *want.Flow), fmt.Sprintf("%+v", *got.Response.Flow))
		}},
		{"counters", want.Counters != nil, got.Counters != nil, v.counters},
		{"log", want.Log != nil, got.Log != nil, v.logged},
	} {
		switch {
		case part.asked && part.seen:
			part.judge()
		case part.asked && v.e.Cell.Provider == "local" && v.has(scenarios.Metrics): // which shows all of it
			v.compare(part.field, "something to be judged", "nothing")
		case part.asked:
			v.notJudged(part.field)
		}
	}
}

func (v *stepJudge) logged() {
	for _, pattern := range v.expect.Log {
		line, err := regexp.Compile(pattern)
		seen := scenarios.List(v.o.Log)
		if err == nil && slices.ContainsFunc(v.o.Log, line.MatchString) {
			seen = pattern
		}
		v.compare("log", pattern, seen)
	}
}

// counters judges the authorization metrics: of those that are named no other series moves, and times that can be.
func (v *stepJudge) counters() {
	want, got, named := maps.Clone(v.expect.Counters), map[string]int{}, map[string]bool{}
	for series := range want {
		name, _, _ := strings.Cut(series, "{")
		named[name] = true
	}
	maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
	for _, m := range v.o.Counters {
		if !named[m.Name] {
			continue
		}
		got[m.Series()] = m.Delta
		if m.Seconds != nil {
			took := spent(time.Duration(*m.Seconds*float64(time.Second)), v.o.Answered.Sub(v.o.Sent))
			v.compare("counters (time)", someTime, took)
		}
	}
	v.compare("counters", fmt.Sprint(want), fmt.Sprint(got))
}

// together judges requests that were sent at the same time. The answer and the audit event of each are its own; access
// reviews and counters are those of all. Which of several that ask the same found the answer remembered is open.
func (j *judge) together(first int, group []scenarios.Step, seen []Observation) (problem string) {
	all := j.request(first, &group[0], &seen[0])
	decided := all.folded(seen[0].Reviews)
	var wanted, got []string
	var attempts []scenarios.MetricDelta
	for i := range group {
		v := j.request(first+i, &group[i], &seen[i])
		if problem := cmp.Or(v.sent(), v.noEvent()); problem != "" {
			return problem
		}
		v.decided = slices.DeleteFunc(slices.Clone(decided), func(d Decided) bool { return d.Spec.User != v.impersonated() })
		v.outcome()
		v.told()
		v.user()
		v.audit()
		for _, r := range v.expect.Reviews {
			who := v.userOf(r.By)
			r.By = ""
			wanted = append(wanted, fmt.Sprintf("%s %+v", who, r))
		}
		if m := v.expect.Metrics; m != nil {
			attempts = append(attempts, m.Attempts...)
		}
	}
	for _, d := range decided {
		r := Describe(d)
		r.Extra = nil
		got = append(got, fmt.Sprintf("%s %+v", d.Spec.User, r))
	}
	if j.has(scenarios.Reviews) {
		all.compare("reviews (at most)", strconv.Itoa(len(wanted)), strconv.Itoa(max(len(wanted), len(got))))
		all.compare("reviews (in any order)", distinct(wanted), distinct(got))
	} else {
		j.notJudged("reviews")
	}
	if !j.has(scenarios.Metrics) {
		j.notJudged("metrics")
		return ""
	}
	all.compare(attemptsField, scenarios.RenderDeltas(attempts), all.increases(AttemptsMetric))
	all.compare(countedField, checks(decided, ""), all.increases(AuthorizationsMetric))
	return ""
}

// distinct lists texts in order, each once.
func distinct(list []string) string {
	slices.Sort(list)
	return scenarios.List(slices.Compact(list))
}
