package verdicts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/scenarios"
)

// judgeConcurrent judges requests that were sent at the same time. Each has its own answer and audit event. Access
// reviews and counters belong to all of them together, and are compared where the steps state some. If several ask the
// same, any of them may have found the answer in the cache. It returns a problem of the harness, or "".
//
// Rules that are not called here are not applied to such requests.
func (j *judge) judgeConcurrent(first int, group []scenarios.Step, observations []Observation) (problem string) {
	groupJudge := j.newStepJudge(first, &group[0], &observations[0])
	decisions := groupJudge.deriveDecisions(observations[0].Reviews)
	var want, got []string
	var attempts []scenarios.MetricDelta
	statesReviews, statesAttempts := false, false
	for i := range group {
		v := j.newStepJudge(first+i, &group[i], &observations[i])
		if problem := cmp.Or(v.checkSent(), v.checkEventExists()); problem != "" {
			return problem
		}
		v.decided = slices.DeleteFunc(slices.Clone(decisions), func(d DecidedReview) bool { return d.Spec.User != v.impersonatedName() })
		v.checkOutcome()
		v.checkEvent()
		v.checkUser()
		v.checkAudit()
		statesReviews = statesReviews || v.expect.Reviews != nil
		for _, r := range v.expect.Reviews {
			who := v.subjectName(r.By)
			r.By = ""
			want = append(want, fmt.Sprintf("%s %+v", who, r))
		}
		if m := v.expect.Metrics; m != nil {
			statesAttempts = true
			attempts = append(attempts, m.Attempts...)
		}
	}
	for _, d := range decisions {
		r := Describe(d)
		r.Extra = nil
		got = append(got, fmt.Sprintf("%s %+v", d.Spec.User, r))
	}
	switch {
	case !statesReviews:
	case j.hasCapability(scenarios.Reviews):
		groupJudge.compare("reviews (at most)", strconv.Itoa(len(want)), strconv.Itoa(max(len(want), len(got))))
		groupJudge.compare(
			"reviews (in any order)",
			scenarios.List(sets.List(sets.New(want...))),
			scenarios.List(sets.List(sets.New(got...))),
		)
	default:
		j.addNotJudged("reviews")
	}
	if !j.hasCapability(scenarios.Metrics) {
		j.addNotJudged("metrics")
		return ""
	}
	if statesAttempts {
		groupJudge.compare(attemptsField, scenarios.RenderDeltas(attempts), groupJudge.renderIncreases(AttemptsMetric))
	}
	groupJudge.compare(countedField, renderChecks(decisions, ""), groupJudge.renderIncreases(AuthorizationsMetric))
	return ""
}
