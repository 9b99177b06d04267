package certify

import (
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// unreachableFaults are faults of the whole server. If one of them occurs, nothing else can be judged.
var unreachableFaults = []string{
	"cannot-connect", "plain-http", "tls-handshake-hangs", "server-certificate-untrusted", "server-certificate-expired",
	"server-certificate-for-another-host", "client-certificate-expired", "client-certificate-refused",
}

// explainableFaults are faults that may be caused by what a question is about.
var explainableFaults = []string{"http-status", "closes-the-connection", "does-not-answer-in-time", "answer-unreadable"}

// reasonSlow is the finding about an answer that is right but took longer than is recommended.
const reasonSlow = "answers-slowly"

// reasonTransient is the finding about answers that were wrong for a while, and right when the questions were asked
// again.
const reasonTransient = "transient"

// judge returns the reasons for which an answer is wrong. There are none if it is right.
func judge(v Question, a Answer) (reasons []string) {
	if v.Expect == "" {
		return judgeRefusal(v, a)
	}
	if a.Fault != "" {
		return []string{v.nameFault(a.Fault)}
	}
	contradicts := a.Allowed && a.Denied
	isLenient := func(name string) bool { return v.Level == Safe && name == unnamedType } // see advise
	for _, check := range []struct {
		wrong  bool
		reason string
	}{
		{a.isSlow(), reasonSlow},
		{a.Kind != "" && !isLenient(a.Kind), "wrong-kind"},
		{a.APIVersion != "" && !isLenient(a.APIVersion), "wrong-api-version"},
		{!a.HasStatus, "no-status"},
		{contradicts, "allowed-and-denied"},
		{len(a.UnknownFields) > 0, "conditions-not-asked-for"},
		{a.HasEvaluationError && v.Level != Safe, "evaluation-error"},
		{a.LeakedInternals != "" && v.Level == Safe, "shows-its-inside"},
		{a.RepeatsAnotherSpec, "echoes-another-review"},
	} {
		if check.wrong {
			reasons = append(reasons, check.reason)
		}
	}
	hasDecision := a.HasStatus && !contradicts
	if reason := judgeDecision(v, a); reason != "" && hasDecision {
		reasons = append(reasons, reason)
	}
	return reasons
}

// advise returns what somebody should know about a right answer of level Safe. That level is for authorizers whose
// place in a chain is not known. There a denial is as safe as no opinion, and so is an evaluation error as long as
// nothing is allowed.
func advise(v Question, a Answer) (reasons []string) {
	if v.Level != Safe || a.undecidedReason() != "" {
		return nil
	}
	if a.Denied && !a.Allowed {
		reasons = append(reasons, "denies-what-is-not-granted")
	}
	if isReview := v.Expect != ""; a.HasEvaluationError && isReview {
		reasons = append(reasons, "evaluation-error")
	}
	if a.isUnnamed() {
		reasons = append(reasons, "answer-without-kind")
	}
	return reasons
}

// nameFault returns the name of the finding about a fault. If what the question is about may have caused the fault, that
// is the name.
func (v Question) nameFault(fault string) string {
	if v.ExplainsFaults && slices.Contains(explainableFaults, fault) {
		return v.Reason
	}
	return fault
}

// isSlow reports whether an answer took longer than is recommended, not counting what the harness itself needed. It
// does not judge answers that came while many reviews were in flight or the harness was late.
func (a Answer) isSlow() bool {
	isConcurrentCheck := isConcurrent(a.Check) || isLoadCheck(a.Check)
	return !isConcurrentCheck && !a.isHarnessLate() && a.Millis-a.HarnessMs > slowAnswer.Milliseconds()
}

// isHarnessLate reports whether the harness itself needed so long at the same moment that nothing can be said about the
// authorizer's time.
func (a Answer) isHarnessLate() bool { return a.HarnessMs > maxHarnessLag.Milliseconds() }

// isTimeUnclear reports whether an answer was too late while the harness was late itself, so that nobody knows whose
// fault it is.
func (a Answer) isTimeUnclear() bool {
	isLate := a.Fault == faultNoAnswerInTime || a.Millis > slowAnswer.Milliseconds()
	return isLate && a.isHarnessLate() && !isLoadCheck(a.Check)
}

// judgeDecision returns why a decision is wrong, or "" if it is right.
func judgeDecision(v Question, a Answer) string {
	got := a.decision()
	switch {
	case got == v.Expect:
		return ""
	case got == scenarios.Deny && v.Level == Safe:
		return "" // see advise
	case got == scenarios.Deny && v.Expect == scenarios.NoOpinion:
		return "denies-what-is-not-granted"
	}
	return v.Reason
}

// allowedRefusals are the faults by which a request that is not a review may be refused.
var allowedRefusals = []string{"http-status", "answer-unreadable", "answers-html", "redirects"}

// judgeRefusal judges the answer to a request that is not a review. Anything but a crash is right, as long as nothing
// is allowed.
func judgeRefusal(v Question, a Answer) []string {
	refused := a.HTTP > 0 && a.HTTP < 500 && slices.Contains(allowedRefusals, a.Fault)
	switch {
	case a.Allowed:
		return []string{v.Reason}
	case a.Fault == "" || refused:
		return nil
	case slices.Contains(unreachableFaults, a.Fault):
		return []string{a.Fault}
	}
	return []string{"bad-request-breaks"}
}
