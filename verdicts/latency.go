package verdicts

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// These are the classes of a duration. The duration itself is left out, so that the same fault reads the same in every
// run.
const (
	someTime    = "more than none, at most that of the request"
	noTime      = "none"
	tooLong     = "more than that of the request"
	tooShort    = "less than between its checks"
	noAnnotated = "absent"
)

// clockSlack is by how much a time that the API server measured may exceed the time of the request that was measured
// here. Clocks may be set in between.
const clockSlack = time.Second

// classifyDuration returns the class of a duration that is a part of a request.
func classifyDuration(d, request time.Duration) string {
	switch {
	case d <= 0:
		return noTime
	case d > request+clockSlack:
		return tooLong
	}
	return someTime
}

// checkDurations demands that the time which a duration histogram counted is more than zero, at most that of the
// request, and, for attempts, no less than the time between their checks.
//
// Source: KEP-5284, Monitoring Requirements; k8s.io/apiserver/pkg/endpoints/filters/impersonation/metrics.
func (v *stepJudge) checkDurations(field, histogram string) {
	for _, m := range v.o.Metrics {
		if m.Name != histogram || m.Seconds == nil || v.o.Answered.IsZero() {
			continue
		}
		v.compare(field+" (time)", someTime, v.classifyCounted(field, *m.Seconds))
	}
}

// classifyCounted returns the class of the seconds that a histogram counted for the request.
func (v *stepJudge) classifyCounted(field string, seconds float64) string {
	if seconds >= time.Hour.Seconds() {
		return tooLong // it might not fit into a time.Duration
	}
	d := time.Duration(seconds * float64(time.Second))
	kind := classifyDuration(d, v.o.Answered.Sub(v.o.Sent))
	isTooShort := field == attemptsField && d+clockSlack < v.timeBetweenChecks()
	if kind == someTime && isTooShort {
		return tooShort
	}
	return kind
}

// These are the annotations of a request that took more than half a second (writeLatencyToAnnotation of
// k8s.io/apiserver/pkg/endpoints/filters/audit.go). They say how long it took in all, and how long authorization and
// impersonation took.
const (
	latencyPrefix           = "apiserver.latency.k8s.io/"
	totalAnnotation         = latencyPrefix + "total"
	authorizationAnnotation = latencyPrefix + "authorization"
	impersonationAnnotation = latencyPrefix + "impersonation"
)

// slowRequestFrom is the duration from which on the audit event of a request says where the time went.
const slowRequestFrom = 500 * time.Millisecond

// versionsWithoutSlowRequests matches the versions that measured a request before it had ended, and so called none slow
// (fixed in 1.35).
var versionsWithoutSlowRequests = regexp.MustCompile(`^v?1\.(?:[0-2]?\d|3[0-4])(?:\.|$)`)

// versionsWithoutImpersonationTime matches the versions that do not measure impersonation.
var versionsWithoutImpersonationTime = regexp.MustCompile(`^v?1\.(?:[0-2]?\d|3[0-5])(?:\.|$)`)

// checkLatency demands that the audit event of a slow request says where its time went, and that the event of a quick
// one says nothing of it. API servers say so since they have the metrics. A watch lasts as long as its client wants, so
// its event must say nothing.
//
// Source: writeLatencyToAnnotation in k8s.io/apiserver/pkg/endpoints/filters/audit.go.
func (v *stepJudge) checkLatency() {
	if v.event.Verb == "watch" {
		v.compare("audit (latency of a watch)", noAnnotated, textIf(v.hasLatency(), "there", noAnnotated))
		return
	}
	total, err := time.ParseDuration(v.event.Annotations[totalAnnotation])
	hasTotal := err == nil
	v.checkTotalLatency(total, hasTotal)
	if hasTotal && v.event.Annotations[decisionAnnotation] != "" {
		v.checkAuthorizationLatency(total)
	}
	v.checkImpersonationLatency(total, hasTotal)
	if hasTotal {
		v.checkOtherLatencies(total)
	}
}

// hasLatency reports whether the audit event says how long anything took.
func (v *stepJudge) hasLatency() bool {
	for key := range v.event.Annotations {
		if strings.HasPrefix(key, latencyPrefix) {
			return true
		}
	}
	return false
}

// checkOtherLatencies demands that every other handler whose time the audit event states, such as storage or webhooks of
// admission, took some of the time that the whole request took.
//
// Source: writeLatencyToAnnotation in k8s.io/apiserver/pkg/endpoints/filters/audit.go.
func (v *stepJudge) checkOtherLatencies(total time.Duration) {
	annotations := []string{totalAnnotation, authorizationAnnotation, impersonationAnnotation}
	for _, key := range slices.Sorted(maps.Keys(v.event.Annotations)) {
		handler, isLatency := strings.CutPrefix(key, latencyPrefix)
		if !isLatency || slices.Contains(annotations, key) {
			continue
		}
		part, err := time.ParseDuration(v.event.Annotations[key])
		v.compare("audit (latency of "+handler+")", someTime, textIf(err == nil, classifyDuration(part, total), "not a duration"))
	}
}

// checkTotalLatency demands that an audit event which says how long a request took is of a slow one, and that the event
// of a slow one says so.
//
// Source: writeLatencyToAnnotation in k8s.io/apiserver/pkg/endpoints/filters/audit.go.
func (v *stepJudge) checkTotalLatency(total time.Duration, hasTotal bool) {
	const slowRequest = "that of a slow request"
	elapsed := v.event.StageTimestamp.Sub(v.event.RequestReceivedTimestamp.Time)
	isSlow := elapsed > slowRequestFrom+clockSlack
	switch {
	case hasTotal:
		v.compare("audit (latency)", slowRequest, textIf(total > slowRequestFrom, slowRequest, "that of a quick one"))
	case isSlow && !versionsWithoutSlowRequests.MatchString(v.e.Cell.Kubernetes):
		v.compare("audit (latency)", slowRequest, noAnnotated)
	}
}

// checkAuthorizationLatency demands that authorization took some of the time that the whole request took.
//
// Source: writeLatencyToAnnotation in k8s.io/apiserver/pkg/endpoints/filters/audit.go.
func (v *stepJudge) checkAuthorizationLatency(total time.Duration) {
	part, err := time.ParseDuration(v.event.Annotations[authorizationAnnotation])
	v.compare("audit (latency of authorization)", someTime, textIf(err == nil, classifyDuration(part, total), noAnnotated))
}

// checkImpersonationLatency demands that the event of a slow request which impersonates says how long that took, as the
// histogram counted it, and that the event of any other request says nothing of it. Where it cannot be known whether
// the API server measures it, neither is demanded.
//
// Source: KEP-5284, Monitoring Requirements; writeLatencyToAnnotation in k8s.io/apiserver/pkg/endpoints/filters/audit.go.
func (v *stepJudge) checkImpersonationLatency(total time.Duration, hasTotal bool) {
	const field = "audit (latency of impersonation)"
	isAttempted := v.event.ImpersonatedUser != nil || outcomeOfAnswer(v.o.Response.Code, v.status) == scenarios.ImpersonationForbidden
	asksForNobody := len(impersonationHeaders(v.o.Request)) == 0
	text := v.event.Annotations[impersonationAnnotation]
	part, err := time.ParseDuration(text)
	hasPart := err == nil
	isMeasured := isAttempted && v.measuresImpersonation()
	isUnmeasured := asksForNobody || v.measuresNoImpersonation()
	switch {
	case hasTotal && isMeasured:
		v.compare(field, someTime, textIf(hasPart, classifyDuration(part, total), noAnnotated))
		if duration, ok := v.countedTime(); ok && hasPart {
			const ofHistogram = "that of the histogram"
			isNear := (part - duration).Abs() <= time.Millisecond
			v.compare("audit (latency of impersonation, as counted)", ofHistogram, textIf(isNear, ofHistogram, "another"))
		}
	case !hasTotal || isUnmeasured:
		v.compare(field, noAnnotated, textIf(text == "", noAnnotated, "there"))
	}
}

// measuresImpersonation reports whether the API server measures impersonation. Its metrics are part of this evidence,
// or, where metrics are read for many requests at once, its version and gate show it.
func (v *stepJudge) measuresImpersonation() bool {
	if v.hasCapability(scenarios.Metrics) {
		return true
	}
	return v.s.Requires.Gate == scenarios.GateOn && !versionsWithoutImpersonationTime.MatchString(v.e.Cell.Kubernetes)
}

// measuresNoImpersonation reports whether the API server is known not to measure impersonation. That is known only of
// targets of our own, which show reviews.
func (v *stepJudge) measuresNoImpersonation() bool {
	return v.hasCapability(scenarios.Reviews) && !v.measuresImpersonation()
}

// countedTime returns the time that the histogram of attempts has counted for the request, if it counted one attempt.
func (v *stepJudge) countedTime() (d time.Duration, ok bool) {
	for _, m := range v.o.Metrics {
		if m.Name == strings.TrimSuffix(AttemptsMetric, "_total")+durationCount && m.Seconds != nil {
			return time.Duration(*m.Seconds * float64(time.Second)), m.Delta == 1
		}
	}
	return 0, false
}

// timeBetweenChecks returns the time from the first to the last impersonation check: an attempt cannot have taken less.
func (v *stepJudge) timeBetweenChecks() time.Duration {
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
