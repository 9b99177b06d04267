package verdicts

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// surrounding is something that is seen of a request outside of its authorization.
type surrounding struct {
	field      string
	isExpected bool // whether the scenario expects it
	isShown    bool // whether the target shows it
	check      func()
}

// surroundings returns what was seen by admission, by priority and fairness, and by an operator.
func (v *stepJudge) surroundings() []surrounding {
	want, got := v.expect, v.o
	return []surrounding{
		{"backend", want.Backend != nil, v.hasCapability(scenarios.Aggregation), v.checkBackend},
		{"admission", want.Admission != nil, v.hasCapability(scenarios.Aggregation), func() {
			v.compare("admission", RenderUsers(want.Admission), RenderUsers(got.Admission))
		}},
		{"flow", want.Flow != nil, got.Response.Flow != nil, func() {
			v.compare("flow", fmt.Sprintf("%+v", *want.Flow), fmt.Sprintf("%+v", *got.Response.Flow))
		}},
		{"counters", want.Counters != nil, got.Counters != nil, v.checkCounters},
		{"log", want.Log != nil, got.Log != nil, v.checkLog},
	}
}

// checkSurroundings demands of backend, admission, flow, counters and log what the scenario expects. A target of
// our own processes that has metrics shows all of them: there it is a difference if one is not shown.
//
// Source: the scenario, and what its document says of each.
func (v *stepJudge) checkSurroundings() {
	for _, part := range v.surroundings() {
		if !part.isExpected {
			continue
		}
		switch {
		case part.isShown:
			part.check()
		case v.e.Capabilities.Processes() && v.hasCapability(scenarios.Metrics):
			v.compare(part.field, "something to be judged", "nothing")
		default:
			v.addNotJudged(part.field)
		}
	}
}

// checkLog demands that each expected pattern matches a line that the API server logged about the request.
//
// Source: the scenario.
func (v *stepJudge) checkLog() {
	for _, pattern := range v.expect.Log {
		line, err := regexp.Compile(pattern)
		log := scenarios.List(v.o.Log)
		if err == nil && slices.ContainsFunc(v.o.Log, line.MatchString) {
			log = pattern
		}
		v.compare("log", pattern, log)
	}
}
