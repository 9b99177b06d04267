package verdicts

import (
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// What a duration can be said to be, so that the same fault reads the same in every run.
const (
	someTime    = "more than none, at most that of the request"
	noTime      = "none"
	tooLong     = "more than that of the request"
	noAnnotated = "absent"
)

// clockSlack is how much longer the API server may count than a request took here: the clock that times are taken
// from can be set meanwhile.
const clockSlack = time.Second

// spent says what a duration within a request is.
func spent(d, request time.Duration) string {
	switch {
	case d <= 0:
		return noTime
	case d > request+clockSlack:
		return tooLong
	}
	return someTime
}

// durations judges the time that a duration histogram counted.
func (v *stepJudge) durations(field, histogram string) {
	for _, m := range v.o.Metrics {
		if m.Name != histogram || m.Seconds == nil || v.o.Answered.IsZero() {
			continue
		}
		got := tooLong // what does not fit into a time.Duration is
		if *m.Seconds < time.Hour.Seconds() {
			got = spent(time.Duration(*m.Seconds*float64(time.Second)), v.o.Answered.Sub(v.o.Sent))
		}
		v.compare(field+" (time)", someTime, got)
	}
}

// Annotations of a request that took more than half a second, as writeLatencyToAnnotation of
// k8s.io/apiserver/pkg/endpoints/filters/audit.go has it: how long it took in all, and impersonation within.
const (
	totalAnnotation         = "apiserver.latency.k8s.io/total"
	impersonationAnnotation = "apiserver.latency.k8s.io/impersonation"
)

// latency judges that the audit event of a slow request says how long the impersonation took. API servers say so
// since they have the metrics.
func (v *stepJudge) latency() {
	total, err := time.ParseDuration(v.event.Annotations[totalAnnotation])
	attempted := v.event.ImpersonatedUser != nil || OutcomeOf(v.o.Response) == scenarios.ImpersonationForbidden
	if err != nil || !attempted || !v.has(scenarios.Metrics) {
		return
	}
	got := noAnnotated
	if d, err := time.ParseDuration(v.event.Annotations[impersonationAnnotation]); err == nil {
		got = spent(d, total)
	}
	v.compare("audit (latency of impersonation)", someTime, got)
}
