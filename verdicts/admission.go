package verdicts

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

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
		case part.asked && v.e.Capabilities.Processes() && v.has(scenarios.Metrics): // all of it can be seen
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
