package verdicts

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// checkCounters demands that the expected authorization metrics increase as stated, that no other series of these
// metrics increases, and that a time which they count is more than zero and at most that of the request. Series that
// count allowed requests also increase without the scenario, because the API server asks itself: they are judged only
// where they are stated, and have to increase by at least that much.
//
// Source: k8s.io/apiserver/pkg/endpoints/filters/metrics.go and k8s.io/apiserver/pkg/authorization/metrics.
func (v *stepJudge) checkCounters() {
	want, got, statedMetrics := maps.Clone(v.expect.Counters), map[string]int{}, map[string]bool{}
	for series := range want {
		name, _, _ := strings.Cut(series, "{")
		statedMetrics[name] = true
	}
	maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
	for _, m := range v.o.Counters {
		if !statedMetrics[m.Name] {
			continue
		}
		minimum, isStated := want[m.Series()]
		switch {
		case !m.CountsAllowed():
			got[m.Series()] = m.Delta
		case !isStated:
			continue
		default:
			got[m.Series()] = min(minimum, m.Delta)
		}
		if m.Seconds != nil {
			duration := classifyDuration(time.Duration(*m.Seconds*float64(time.Second)), v.o.Answered.Sub(v.o.Sent))
			v.compare("counters (time)", someTime, duration)
		}
	}
	v.compare("counters", fmt.Sprint(want), fmt.Sprint(got))
}
