package verdicts

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/scenarios"
)

// stepJudge judges one request of a scenario. Each of its methods called check… demands one thing of what was observed.
type stepJudge struct {
	*judge
	index        int
	request      *scenarios.Request
	requestor    scenarios.Requestor
	expect       *scenarios.Expect
	o            *Observation
	isFromClient bool // the request is one of those that a client program sent
	event        *auditv1.Event
	status       *metav1.Status // of the answer
	decided      []DecidedReview
}

// impersonatedName returns the name of the user who is to be impersonated, or "" if nobody is.
func (v *stepJudge) impersonatedName() string { return v.request.WantedUser() }

// reviewsUntilFinal returns the reviews up to that of the request itself. It leaves out the last one if the request
// itself asks for an access review.
func (v *stepJudge) reviewsUntilFinal() []DecidedReview {
	if _, ok := v.requestedReview(); ok {
		return v.decided[:max(0, len(v.decided)-1)]
	}
	return v.decided
}

// finalReview returns the review of the request itself, if it was sent on behalf of somebody else and the authorizers
// were asked about it.
func (v *stepJudge) finalReview() (d DecidedReview, ok bool) {
	all := v.reviewsUntilFinal()
	if len(all) == 0 || all[len(all)-1].Spec.User != v.impersonatedName() {
		return d, false
	}
	return all[len(all)-1], true
}

// checkSubjects demands that reviews are about the requestor, the impersonated user, or the user whom the request
// itself asks about. Requests are sent one at a time, so there is nobody else whom the API server could have asked
// about.
//
// Source: KEP-5284, workflow when the feature is enabled; constrainedImpersonationHandler in k8s.io/apiserver/pkg/endpoints/filters/impersonation/constrained_impersonation.go.
func (v *stepJudge) checkSubjects() {
	subjects := []string{v.requestor.Username(), v.impersonatedName()}
	if spec, ok := v.requestedReview(); ok {
		subjects = append(subjects, spec.User)
	}
	for _, d := range v.decided {
		if !slices.Contains(subjects, d.Spec.User) {
			v.compare(aboutField, "nobody else", describeSpec(d.Spec))
			return
		}
	}
}

// checkCounts demands that the API server counts the impersonation checks, by mode and decision, that the recorder has
// seen (apiserver_impersonation_authorization_attempts_total). An API server whose counts differ from its questions
// contradicts itself. The exception is an API server that counted what the scenario expects while the recorder has seen
// fewer reviews than the scenario expects: then the recorder has lost some, and the result is invalid.
//
// Source: KEP-5284, Monitoring Requirements; k8s.io/apiserver/pkg/endpoints/filters/impersonation/metrics.
func (v *stepJudge) checkCounts() (problem string) {
	isPrivileged := slices.Contains(v.requestor.Groups, user.SystemPrivilegedGroup) // authorizers are not asked about its members
	areCountsShown := v.hasCapability(scenarios.Metrics) && v.hasCapability(scenarios.Reviews)
	if isPrivileged || !areCountsShown {
		return ""
	}
	decisions := v.decided
	if v.impersonatedName() == "" {
		decisions = nil // a request that asks what its requestor may impersonate, as kubectl auth can-i does, impersonates nobody
	}
	got, counts := renderChecks(decisions, v.requestor.Username()), v.renderIncreases(AuthorizationsMetric)
	if got != counts && v.hasLostReviews(counts) {
		return fmt.Sprintf("the recorder saw the impersonation checks %s, the API server counted %s, as it should", got, counts)
	}
	v.compare(countedField, got, counts)
	return ""
}

// renderChecks returns the impersonation checks among reviews, by mode and decision. If a user is given, it returns
// only those about that user.
func renderChecks(decisions []DecidedReview, user string) string {
	var checks []scenarios.MetricDelta
	for _, d := range decisions {
		isOfUser := user == "" || d.Spec.User == user
		if mode, ok := scenarios.ImpersonationMode(Describe(d).Verb); ok && isOfUser {
			checks = append(checks, scenarios.MetricDelta{Mode: mode, Decision: scenarios.DecisionLabel(d.Decision), Count: 1})
		}
	}
	return scenarios.RenderDeltas(checks)
}

// hasLostReviews reports whether the recorder has seen fewer reviews than belong to what the API server counted.
func (v *stepJudge) hasLostReviews(counts string) bool {
	all := append([]scenarios.Alternative{{Reviews: v.expect.Reviews, Metrics: v.expect.Metrics}}, v.expect.OneOf...)
	return slices.ContainsFunc(all, func(a scenarios.Alternative) bool {
		isCounted := a.Metrics != nil && scenarios.RenderDeltas(a.Metrics.Authorizations) == counts
		return isCounted && len(v.decided) < countReviews(a.Reviews)
	})
}

// checkOutcome demands the class of the answer, its code, message, warnings and output. An audit event must show the
// same class.
//
// Source: the reference page on authorization; WithAuthorization in k8s.io/apiserver/pkg/endpoints/filters/authorization.go.
func (v *stepJudge) checkOutcome() {
	got := v.observedOutcome()
	if v.isShownByAuditOnly(got) {
		v.addNotJudged("outcome")
	} else {
		v.compare(outcomeField, string(v.expect.Outcome), string(got))
	}
	if v.event != nil {
		v.compare("outcome in the audit event", quote(expectedAnnotation[got]), quote(v.event.Annotations[decisionAnnotation]))
	}
	if v.expect.Code != 0 {
		v.compare("code", strconv.Itoa(v.expect.Code), strconv.Itoa(v.o.Response.Code))
	}
	v.checkMessage()
	v.checkRefusal()
	if v.expect.Warnings != nil || !v.e.Capabilities.Foreign() {
		v.compare("warnings", scenarios.List(v.expect.Warnings), scenarios.List(v.o.Response.Warnings))
	}
	if v.expect.Output != "" { // the output of a log or a command
		v.compare("output", v.expect.Output, strings.TrimSpace(v.o.Response.Body))
	}
}

// observedOutcome returns the class of the answer. It follows from the code and text, or from the audit event where
// these are not enough.
func (v *stepJudge) observedOutcome() scenarios.Outcome {
	got := outcomeOfAnswer(v.o.Response.Code, v.status)
	if got == "" && !v.isExcludedByAuditPolicy() {
		got = outcomeFromAudit(v.o.Response.Code, v.event)
	}
	if got != scenarios.RequestForbidden || v.event == nil {
		return got
	}
	switch decision := v.event.Annotations[decisionAnnotation]; {
	case decision == "allow":
		return scenarios.Allowed // it was refused after authorization, by admission or by a check of the handler
	case decision == "" && v.status != nil:
		return scenarios.ImpersonationForbidden // it was refused before authorization, with the text of an authorizer
	}
	return got
}

// isShownByAuditOnly reports whether only an audit event could show the outcome and the target shows none. Either the
// answer shows nothing, or it is an expected refusal by admission or a handler, which looks like one by an authorizer.
func (v *stepJudge) isShownByAuditOnly(got scenarios.Outcome) bool {
	if v.mustHaveEvent() {
		return false
	}
	isRefusedAfterAuthorization := v.expect.Outcome == scenarios.Allowed && v.expect.Code >= codeBadRequest &&
		v.expect.Code == v.o.Response.Code
	return got == "" || isRefusedAfterAuthorization
}

// checkMessage demands the message that the scenario states, or a message that its pattern matches. For a TokenReview
// the message is its error.
//
// Source: Forbidden in k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
func (v *stepJudge) checkMessage() {
	got := strings.TrimSpace(ptr.Deref(v.status, metav1.Status{Message: v.o.Response.Body}).Message)
	if v.request.Reviewed() != "" && v.status == nil {
		var review authenticationv1.TokenReview
		if json.Unmarshal([]byte(v.o.Response.Body), &review) == nil {
			got = review.Status.Error
		}
	}
	if v.expect.Message != "" {
		v.compare("message", v.expect.Message, got)
	}
	if pattern := v.expect.MessageMatches; pattern != "" {
		want := "match for " + pattern
		if whole, err := regexp.Compile("^(?:" + pattern + ")$"); err == nil && whole.MatchString(got) {
			got = want
		}
		v.compare("message", want, got)
	}
}

// checkAlternatives demands that one of the alternatives is seen completely, as far as the target shows what it states.
//
// Source: the scenario, whose document leaves open which of them it is.
func (v *stepJudge) checkAlternatives() {
	if v.expect.OneOf == nil {
		return
	}
	want, got := fmt.Sprintf("one of %d alternatives", len(v.expect.OneOf)), "none of them"
	for i, a := range v.expect.OneOf {
		trial := *v
		trial.judge = &judge{s: v.s, e: v.e}
		trial.expect = &scenarios.Expect{Message: a.Message, Reviews: a.Reviews, Metrics: a.Metrics}
		trial.checkMessage()
		trial.checkReviews()
		trial.checkMetrics()
		v.addNotJudged(trial.result.NotJudged...)
		if len(trial.result.Differences) == 0 {
			got = want
			break
		}
		d := trial.result.Differences[0]
		got += fmt.Sprintf("; of number %d, %s: want %s, got %s", i+1, d.Field, d.Want, d.Got)
	}
	v.compare("oneOf", want, got)
}

// checkUser demands the resulting user in the final access review and in the audit event, where the target shows them.
//
// Source: the reference page on user impersonation; KEP-5284, Design Details.
func (v *stepJudge) checkUser() {
	want := v.expect.User
	if want == nil {
		return
	}
	sources := 0
	if v.hasCapability(scenarios.Reviews) && v.expectsFinalReview() {
		sources++
		got := noFinalReview
		if d, ok := v.finalReview(); ok {
			got = reviewUser(d.Spec).Render()
		}
		v.compare(finalUserField, want.Render(), got)
	}
	if v.event != nil {
		sources++
		v.compare(auditUserField, want.Render(), renderImpersonatedUser(v.event))
	}
	if sources == 0 {
		v.addNotJudged("user")
	}
}

// checkWantedUser demands that the resulting user is the one whom the headers ask for, that the groups they ask for come
// first, and that the final access review has the same user as the audit event. It applies where the scenario does not
// state the user.
//
// Source: the reference page on user impersonation, the headers of a request.
func (v *stepJudge) checkWantedUser() {
	isImpersonated := v.event != nil && v.event.ImpersonatedUser != nil
	if v.expect.User != nil || !isImpersonated {
		return
	}
	u := v.event.ImpersonatedUser
	got, want := scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra), v.request.RequestedUser()
	if d, ok := v.finalReview(); ok {
		v.compare(finalUserField, got.Render(), reviewUser(d.Spec).Render())
	}
	got.Groups = got.Groups[:min(len(got.Groups), len(want.Groups))]
	v.compare(auditUserField, want.Render(), got.Render())
}

// expectsFinalReview reports whether the authorizers must be asked about the resulting user. They are not where the
// scenario states reviews without such a review, because members of system:masters pass before the authorizers.
func (v *stepJudge) expectsFinalReview() bool {
	return v.expect.Reviews == nil || slices.ContainsFunc(v.expect.Reviews, func(r scenarios.Review) bool {
		return r.By == scenarios.ByImpersonated
	})
}

// checkAudit demands what the scenario states of the audit event.
//
// Source: KEP-5284, Auditing; the type Event of audit.k8s.io/v1.
func (v *stepJudge) checkAudit() {
	want := v.expect.Audit
	if want == nil {
		return
	}
	if v.event == nil {
		v.addNotJudged("audit")
		return
	}
	for _, field := range scenarios.AuditFields() {
		if stated := field.Stated(want); stated != "" {
			v.compare("audit."+field.Name, stated, field.Observed(v.event))
		}
	}
	if want.Constraint != nil {
		v.compare(
			"audit.authenticationMetadata",
			textIf(*want.Constraint == "", "absent", "there"),
			textIf(v.event.AuthenticationMetadata == nil, "absent", "there"),
		)
	}
	v.checkLatency()
}

// These are the impersonation counters of an API server. Beside each there is a histogram of durations.
const (
	AttemptsMetric       = "apiserver_impersonation_attempts_total"
	AuthorizationsMetric = "apiserver_impersonation_authorization_attempts_total"
)

const (
	durationCount = "_duration_seconds_count"

	attemptsField = "metrics.attempts"
	countedField  = "metrics (counted, and seen by the recorder)"
	aboutField    = "reviews (whom they are about)"
	chainField    = "reviews (at the end of the chain)"
	eventsField   = "audit (events)"
)

// checkMetrics demands that the impersonation counters and the counts of their histograms increase as the scenario
// states, and that they have the documented types and labels.
//
// Source: KEP-5284, Monitoring Requirements; k8s.io/apiserver/pkg/endpoints/filters/impersonation/metrics.
func (v *stepJudge) checkMetrics() {
	want := v.expect.Metrics
	if want == nil {
		return
	}
	if !v.hasCapability(scenarios.Metrics) {
		v.addNotJudged("metrics")
		return
	}
	for _, m := range []struct {
		field, name string
		deltas      []scenarios.MetricDelta
	}{
		{attemptsField, AttemptsMetric, want.Attempts},
		{"metrics.authorizations", AuthorizationsMetric, want.Authorizations},
	} {
		want := scenarios.RenderDeltas(m.deltas)
		v.compare(m.field, want, v.renderIncreases(m.name))
		histogram := strings.TrimSuffix(m.name, "_total") + durationCount
		v.compare(m.field+" (duration histogram)", want, v.renderIncreases(histogram))
		v.checkDurations(m.field, histogram)
	}
	for _, m := range v.o.Metrics {
		if m.Type != "" {
			kind := textIf(strings.HasSuffix(m.Name, durationCount), "histogram", "counter")
			v.compare("metrics.type of "+m.Name, kind, m.Type)
		}
		v.compare("metrics.labels of "+m.Name, "mode, decision", strings.Join(append([]string{"mode, decision"}, m.Labels...), ", "))
	}
}

// renderIncreases returns the increases of one metric by mode and decision.
func (v *stepJudge) renderIncreases(name string) string {
	var deltas []scenarios.MetricDelta
	for _, m := range v.o.Metrics {
		if m.Name == name {
			deltas = append(deltas, scenarios.MetricDelta{Mode: m.Mode, Decision: m.Decision, Count: m.Delta})
		}
	}
	return scenarios.RenderDeltas(deltas)
}

// quote returns a value in quotes, or "absent" for an empty one.
func quote(s string) string { return textIf(s == "", "absent", strconv.Quote(s)) }

// reviewUser returns the user whom a review is about.
func reviewUser(spec authorizationv1.SubjectAccessReviewSpec) scenarios.User {
	return scenarios.UserOf(spec.User, spec.UID, spec.Groups, spec.Extra)
}

// requestedReview returns the access review that the request itself asks for, if it asks for one and was answered. The
// review is about the user whom the request names, or else about the user as whom it is sent.
func (v *stepJudge) requestedReview() (spec authorizationv1.SubjectAccessReviewSpec, ok bool) {
	spec, ok = scenarios.ReviewOfBody(v.o.Request.Body)
	if !ok || v.o.Response.Code != codeCreated {
		return spec, false
	}
	if spec.User == "" && len(spec.Groups) == 0 {
		u := v.authenticatedUser()
		if v.event != nil && v.event.ImpersonatedUser != nil {
			i := v.event.ImpersonatedUser
			u = scenarios.UserOf(i.Username, i.UID, i.Groups, i.Extra)
		}
		spec.User, spec.UID, spec.Groups, spec.Extra = u.Name, u.UID, u.Groups, map[string]authorizationv1.ExtraValue{}
		for key, values := range u.Extra {
			spec.Extra[key] = values
		}
	}
	return spec, true
}

// checkForwardedReview demands that the last question to the authorizers is exactly the review that a request for an
// access review asks for, and that the answer is what they decided. Authorizers are not asked about members of
// system:masters.
//
// Source: the reference page on authorization, checking API access; k8s.io/kubernetes/pkg/registry/authorization/util/helpers.go.
func (v *stepJudge) checkForwardedReview() {
	spec, ok := v.requestedReview()
	if !ok {
		return
	}
	isShown := v.hasCapability(scenarios.Reviews) && v.event != nil
	if !isShown || slices.Contains(spec.Groups, user.SystemPrivilegedGroup) {
		return
	}
	render := func(spec authorizationv1.SubjectAccessReviewSpec) string {
		r := Describe(DecidedReview{Spec: spec})
		return fmt.Sprintf(
			"%s %s of version %q, fields %s, labels %s",
			reviewUser(spec).Render(),
			r.Verb+" "+RenderAbout(r),
			r.Version,
			r.FieldSelector,
			r.LabelSelector,
		)
	}
	var answer authorizationv1.SubjectAccessReview
	if len(v.decided) == 0 || json.Unmarshal([]byte(v.o.Response.Body), &answer) != nil {
		v.compare("reviews (asked for)", render(spec), noReason)
		return
	}
	last := v.decided[len(v.decided)-1]
	v.compare("reviews (asked for)", render(spec), render(last.Spec))
	isAllowed, isDenied := last.Decision == scenarios.Allow, last.Decision == scenarios.Deny
	v.compare(
		"status of the answer",
		renderStatusOfReview(isAllowed, isDenied),
		renderStatusOfReview(answer.Status.Allowed, answer.Status.Denied),
	)
}

// renderStatusOfReview returns the status of an access review on one line.
func renderStatusOfReview(allowed, denied bool) string {
	return fmt.Sprintf("allowed %t, denied %t", allowed, denied)
}
