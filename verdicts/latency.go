package verdicts

import (
	"regexp"
	"strings"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// What a duration can be said to be, so that the same fault reads the same in every run.
const (
	someTime    = "more than none, at most that of the request"
	noTime      = "none"
	tooLong     = "more than that of the request"
	tooShort    = "less than between its checks"
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
			d := time.Duration(*m.Seconds * float64(time.Second))
			if got = spent(d, v.o.Answered.Sub(v.o.Sent)); got == someTime && field == attemptsField && d+clockSlack < v.between() {
				got = tooShort
			}
		}
		v.compare(field+" (time)", someTime, got)
	}
}

// Annotations of a request that took more than half a second, as writeLatencyToAnnotation of
// k8s.io/apiserver/pkg/endpoints/filters/audit.go has it: how long it took in all, and within that authorization and
// impersonation.
const (
	totalAnnotation         = "apiserver.latency.k8s.io/total"
	authorizationAnnotation = "apiserver.latency.k8s.io/authorization"
	impersonationAnnotation = "apiserver.latency.k8s.io/impersonation"
)

// slow is the time from which on audit events say where it went.
const slow = 500 * time.Millisecond

// neverSlow are the versions that measured a request before it had an end, and so called none slow (fixed in 1.35).
var neverSlow = regexp.MustCompile(`^v?1\.(?:[0-2]?\d|3[0-4])(?:\.|$)`)

// unmeasured are the versions that measure no impersonation.
var unmeasured = regexp.MustCompile(`^v?1\.(?:[0-2]?\d|3[0-5])(?:\.|$)`)

// latency judges what the audit event says of where the time went: nothing of a quick request; of a slow one, how
// long it took, and how long the impersonation, as the histogram has counted. API servers say so since they have the
// metrics.
func (v *stepJudge) latency() {
	elapsed := v.event.StageTimestamp.Sub(v.event.RequestReceivedTimestamp.Time)
	total, err := time.ParseDuration(v.event.Annotations[totalAnnotation])
	switch {
	case err == nil:
		v.compare("audit (latency)", "that of a slow request", orElse(total > slow, "that of a slow request", "that of a quick one"))
	case elapsed > slow+clockSlack && v.event.Verb != "watch" && !neverSlow.MatchString(v.e.Cell.Kubernetes):
		v.compare("audit (latency)", "that of a slow request", noAnnotated)
	}
	if v.event.Annotations[decisionAnnotation] != "" && err == nil {
		took, bad := time.ParseDuration(v.event.Annotations[authorizationAnnotation])
		v.compare("audit (latency of authorization)", someTime, orElse(bad == nil, spent(took, total), noAnnotated))
	}
	text, got := v.event.Annotations[impersonationAnnotation], noAnnotated
	spentThere, bad := time.ParseDuration(text)
	if bad == nil {
		got = spent(spentThere, total)
	}
	attempted := v.event.ImpersonatedUser != nil || outcomeOf(v.o.Response.Code, v.status) == scenarios.ImpersonationForbidden
	switch {
	case err == nil && attempted && v.measured():
		v.compare("audit (latency of impersonation)", someTime, got)
		if counted, ok := v.counted(); ok && bad == nil {
			near := (spentThere - counted).Abs() <= time.Millisecond
			v.compare("audit (latency of impersonation, as counted)", "that of the histogram", orElse(near, "that of the histogram", "another"))
		}
	case err != nil || v.has(scenarios.Reviews) && !v.measured() || len(impersonationHeaders(v.o.Request)) == 0:
		v.compare("audit (latency of impersonation)", noAnnotated, orElse(text == "", noAnnotated, "there"))
	}
}

// measured says that the API server measures impersonation, be its metrics part of this evidence or, where they are read
// for many requests at once, not.
func (v *stepJudge) measured() bool {
	return v.has(scenarios.Metrics) || v.s.Requires.Gate == scenarios.GateOn && !unmeasured.MatchString(v.e.Cell.Kubernetes)
}

// counted is the time that the histogram of attempts has counted for the request.
func (v *stepJudge) counted() (d time.Duration, ok bool) {
	for _, m := range v.o.Metrics {
		if m.Name == strings.TrimSuffix(AttemptsMetric, "_total")+durationCount && m.Seconds != nil {
			return time.Duration(*m.Seconds * float64(time.Second)), m.Delta == 1
		}
	}
	return 0, false
}

// between is the time from the first to the last impersonation check as the recorder saw them: an attempt cannot
// have taken less.
func (v *stepJudge) between() time.Duration {
	var first, last time.Time
	for _, d := range v.decided {
		if _, ok := scenarios.ImpersonationMode(Describe(d).Verb); ok {
			if first.IsZero() {
				first = d.At
			}
			last = d.At
		}
	}
	return last.Sub(first)
}

func orElse(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}
