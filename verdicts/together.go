package verdicts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/scenarios"
)

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
		all.compare("reviews (in any order)", scenarios.List(sets.List(sets.New(wanted...))), scenarios.List(sets.List(sets.New(got...))))
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
