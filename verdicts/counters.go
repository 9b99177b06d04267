package verdicts

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

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
