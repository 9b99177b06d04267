package verdicts

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
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

// clockSlack is how much longer the API server may count than a request took here, for clocks can be set meanwhile.
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

// between is the time from the first to the last impersonation check: an attempt cannot have taken less.
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

// How far a request may be behind its time before a wrong answer is no longer held against the API server. What waits
// is about windows of ten seconds, and comes within a second of their ends; what does not wait may still rely on what
// the API server remembers for ten seconds.
const (
	slackOfWaits = 500 * time.Millisecond
	slack        = 5 * time.Second
)

// behind says by how much the request of a failed result came too late, if it did: a busy machine answers late, and then
// the time for which an API server remembers something is over before the scenario asks again. It is counted up to
// the first difference, from the first request, without the scenario's waits.
func behind(s *scenarios.Scenario, e *Evidence, r Result) string {
	if r.Verdict != Failed || len(r.Differences) == 0 || len(e.Steps) == 0 {
		return ""
	}
	first, at := &e.Steps[0], r.Differences[0].Step
	for i := range e.Steps {
		if e.Steps[i].Step != at {
			continue
		}
		may := slack
		waits := seq.Sum(s.Steps[first.Step:at], func(st scenarios.Step) time.Duration { return time.Duration(st.Wait) })
		if waits > 0 {
			may = slackOfWaits
		}
		if late := e.Steps[i].Sent.Sub(first.Sent) - waits; late > may {
			return fmt.Sprintf("step %d was sent %s behind its time, more than the %s that the scenario leaves", at, late.Round(time.Millisecond), may)
		}
	}
	return ""
}

// inTime is the result of a scenario whose requests came too late: that of its control run, unless that was late, too,
// or broke. Nothing is known then.
func inTime(s *scenarios.Scenario, e *Evidence, late string) Result {
	r := judgeOnce(s, e.Control)
	switch again := behind(s, e.Control, r); {
	case r.Verdict == Passed:
		r.Reason = late + "; the control run, which was in time, is judged"
	case r.Verdict == Failed && again == "":
		r.Blame, r.Reason = blame(s, e.Control, r)
		r.Reason += "; the first run is not judged: " + late
	default:
		r = Result{Scenario: r.Scenario, Level: r.Level, Verdict: Invalid, Blame: BlameEnvironment}
		r.Reason = late + "; the control run is not judged either: " + orElse(again != "", again, r.Reason)
	}
	r.Cell = e.Cell.Name
	return r
}
