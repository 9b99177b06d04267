package verdicts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	"github.com/authzconf/authzconf/scenarios"
)

// knownAnnotation matches the annotations that Kubernetes gives to audit events.
var knownAnnotation = regexp.MustCompile(`^(authorization\.k8s\.io/(decision|reason)|apiserver\.latency\.k8s\.io/.+|authentication\.(k8s|kubernetes)\.io/.+|pod-security\.kubernetes\.io/.+|k8s\.io/(deprecated|removed-release)|[a-z.]+\.admission\.k8s\.io/.+)$`)

// checkEnvelope demands of every audit event, whatever it is about, that it is of the right API type and of the level
// that the audit policy asks for, that it contains no objects of a higher level, that its times are those of the
// request, and that it has only known fields and annotations.
//
// Source: the reference page on auditing; the type Event of audit.k8s.io/v1.
func (v *stepJudge) checkEnvelope(field string, raw json.RawMessage) {
	var ev auditv1.Event
	strict, err := kjson.UnmarshalStrict(raw, &ev)
	if err = errors.Join(append(strict, err)...); err != nil {
		v.compare(field+" (fields)", "known ones", err.Error())
		return
	}
	level := scenarios.AuditLevel(v.requestor.Groups)
	v.compare(field+" (type)", "Event of audit.k8s.io/v1, "+level, fmt.Sprintf("%s of %s, %s", ev.Kind, ev.APIVersion, ev.Level))
	v.checkObjects(field, &ev, level)
	v.checkTimes(field, &ev)
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(ev.Annotations)), knownAnnotation.MatchString)
	v.compare(field+".annotations", "none of unknown names", textIf(len(unknown) == 0, "none of unknown names", scenarios.List(unknown)))
}

// ClockTolerance is how far the clock of the API server and that of the sender of requests may be apart.
const ClockTolerance = 2 * time.Second

// checkObjects demands that an event contains nothing of the bodies at the level Metadata, what was sent only from the
// level Request on and only if something was sent, and what was answered only at RequestResponse: there a Status has to
// be the same as the answer.
//
// Source: the reference page on auditing, audit levels.
func (v *stepJudge) checkObjects(field string, ev *auditv1.Event, level string) {
	mayHaveRequest := level != scenarios.AuditMetadata && v.o.Request.Body != nil
	mayHaveAnswer := level == scenarios.AuditResponse
	hasTooMuchSent := ev.RequestObject != nil && !mayHaveRequest
	hasTooMuchAnswered := ev.ResponseObject != nil && !mayHaveAnswer
	v.compare(field+" (objects)", noReason, textIf(hasTooMuchSent || hasTooMuchAnswered, "those of a higher level", noReason))
	isStatusOfObject := v.status != nil && ev.ObjectRef != nil
	isComplete := mayHaveAnswer && ev.Stage == auditv1.StageResponseComplete
	if isComplete && isStatusOfObject {
		got := string(ptr.Deref(ev.ResponseObject, runtime.Unknown{}).Raw)
		isAnswer := sameJSON(json.RawMessage(v.o.Response.Body), json.RawMessage(got))
		v.compare(field+" (answer)", v.o.Response.Body, textIf(isAnswer, v.o.Response.Body, got))
	}
}

// checkTimes demands that an event began while the request was under way, and ended no earlier than it began. It may
// end some time after the answer, because the machine may be busy, but not half an hour later. A cluster that somebody
// else made has another clock: there the times are only compared with one another.
//
// Source: the type Event of audit.k8s.io/v1; k8s.io/apiserver/pkg/audit/request.go.
func (v *stepJudge) checkTimes(field string, ev *auditv1.Event) {
	const duringRequest, notBeforeRequest, otherTime = "of the request", "not before the request", "at another time"
	received, ended := ev.RequestReceivedTimestamp.Time, ev.StageTimestamp.Time
	first, last := v.o.Sent.Add(-ClockTolerance), v.o.Answered.Add(ClockTolerance)
	lacksTime := v.o.Sent.IsZero() || received.IsZero()
	if lacksTime || v.e.Capabilities.Foreign() {
		first, last = received, received
	}
	isOutside := received.Before(first) || received.After(last)
	v.compare(field+".requestReceivedTimestamp", duringRequest, textIf(isOutside, otherTime, duringRequest))
	isLate := last != received && ended.After(last.Add(time.Hour/2))
	v.compare(field+".stageTimestamp", notBeforeRequest, textIf(isLate || ended.Before(received), otherTime, notBeforeRequest))
}

// checkAnswer demands of every answer that a Status contains the code that it came with, that the answer to a review
// repeats the question, that a watch which is to be held open stays open, and that a token which was requested or
// reviewed is the right one.
//
// Source: the API conventions of Kubernetes, response status kind.
func (v *stepJudge) checkAnswer() {
	if st := v.status; st != nil && v.o.Response.Code >= codeBadRequest {
		v.compare(
			"status",
			fmt.Sprintf("%s of v1, %d", metav1.StatusFailure, v.o.Response.Code),
			fmt.Sprintf("%s of %s, %d", st.Status, st.APIVersion, st.Code),
		)
	}
	var body struct{ Spec, Kind any }
	isCreated := v.o.Response.Code == codeCreated
	isReadable := isCreated && json.Unmarshal(v.o.Request.Body, &body) == nil
	isReview := body.Spec != nil && reviewKind.MatchString(fmt.Sprint(body.Kind))
	if isReadable && isReview {
		v.checkRepeatedQuestion(body.Spec)
	}
	v.checkForwardedReview()
	if v.request.Hold && v.o.Response.Code == codeOK {
		v.compare("watch", Open, cmp.Or(v.o.Response.Held, "not kept open"))
	}
	switch {
	case !isCreated:
	case v.request.Reviewed() != "":
		v.checkTokenReview()
	case body.Kind == "TokenRequest":
		v.checkTokenRequest()
	}
}

// checkRepeatedQuestion demands that the answer to a review contains everything that was asked.
//
// Source: the API conventions of Kubernetes, spec and status.
func (v *stepJudge) checkRepeatedQuestion(spec any) {
	var answer struct{ Spec any }
	if json.Unmarshal([]byte(v.o.Response.Body), &answer) != nil {
		return
	}
	const question = "what was asked"
	v.compare("spec of the answer", question, textIf(containsJSON(spec, answer.Spec), question, fmt.Sprintf("%v", answer.Spec)))
}

// reviewKind matches the kinds of reviews whose answer repeats the question. SelfSubjectRulesReview does not.
var reviewKind = regexp.MustCompile(`^[A-Za-z]+(Access|Token)Review$`)

// containsJSON reports whether the second JSON value contains all of the first. It may have more fields.
func containsJSON(part, whole any) bool {
	fields, ok := part.(map[string]any)
	if !ok {
		return reflect.DeepEqual(part, whole)
	}
	all, _ := whole.(map[string]any)
	for name := range fields {
		if !containsJSON(fields[name], all[name]) {
			return false
		}
	}
	return true
}

// scriptedDecisions are the decisions that the answers of the scripted webhook amount to. Without a rule its decision
// is no opinion. An answer that cannot be read as one is not listed, because then the failure policy decides.
var scriptedDecisions = map[scenarios.PolicyAnswer]scenarios.Decision{
	"": scenarios.NoOpinion, scenarios.AnswerNoOpinion: scenarios.NoOpinion, scenarios.AnswerAllow: scenarios.Allow,
	scenarios.AnswerDeny: scenarios.Deny, scenarios.AnswerBoth: scenarios.Deny,
}

// checkWebhook demands that reviews are of a kind that the recorder writes, and that the scripted webhook answered as
// the scenario's rules say; if not, the API server is not at fault. Of the API server it demands that a webhook which
// is first in the chain is asked everything.
//
// Source: KEP-3221, the order of authorizers; the reference page on authorization.
func (v *stepJudge) checkWebhook() (problem string) {
	points := map[string]int{}
	for _, r := range v.o.Reviews {
		points[r.Point]++
		if r.APIVersion != "authorization.k8s.io/v1" || !slices.Contains([]string{Front, Back, Policy}, r.Point) {
			return fmt.Sprintf("a review of %q arrived at %q", r.APIVersion, r.Point)
		}
		if !v.isPossibleAnswer(r) {
			want := scriptedDecisions[v.findRule(r).Answer]
			return fmt.Sprintf(
				"the webhook at %q is said to have answered %q to %s, by the scenario %q",
				r.Point,
				r.Decision,
				describeSpec(r.Spec),
				want,
			)
		}
	}
	if v.s.Requires.Chain == "webhook-first" && v.isOnlyRules() { // when it breaks it is asked again
		v.compare("reviews (at the webhook)", strconv.Itoa(points[Front]), strconv.Itoa(min(points[Front], points[Policy])))
	}
	return ""
}

// isPossibleAnswer reports whether the webhook at a review's point can have given this answer. The recorder has no
// opinion at its two points, unless another authorizer than RBAC has the grants. The scripted webhook answers by the
// scenario's rules; where something else decides too, any answer is possible.
func (v *stepJudge) isPossibleAnswer(r Review) bool {
	if r.Point != Policy {
		hasNoOpinion := r.Decision == "" || r.Decision == scenarios.NoOpinion
		return hasNoOpinion || v.e.Authorizer
	}
	want, isAnswer := scriptedDecisions[v.findRule(r).Answer]
	return r.Decision == want || !isAnswer || !v.isOnlyRules()
}

// isOnlyRules reports whether the webhook is asked everything and only the scenario's rules decide what it answers: it
// is in the chain without conditions, and no step so far has removed it or changed its place.
func (v *stepJudge) isOnlyRules() bool {
	isPlainChain := slices.Contains([]string{"webhook-first", "webhook-last"}, v.s.Requires.Chain)
	isReload := func(st scenarios.Step) bool { return st.Reload != "" }
	return isPlainChain && !slices.ContainsFunc(v.s.Steps[:v.index+1], isReload)
}

// findRule returns the rule by which the scripted webhook answers a review, or an empty rule if there is none.
func (v *stepJudge) findRule(r Review) (rule scenarios.PolicyRule) {
	if i := slices.IndexFunc(v.s.Policy, func(p scenarios.PolicyRule) bool { return p.For.Covers(r.Spec) }); i >= 0 {
		rule = v.s.Policy[i]
	}
	return rule
}

const (
	// reasonAnnotation is the annotation that says why the final decision is as it is.
	reasonAnnotation = "authorization.k8s.io/reason"
	failedReason     = "internal error" // the reason whenever an authorizer broke
	anyReason        = "any"            // expected where an authorizer may say what it likes
	noReason         = "none"
)

// builtinReason matches the reason that RBAC gives where it allows by a binding that every cluster has.
var builtinReason = regexp.MustCompile(`^RBAC: allowed by ClusterRoleBinding "(?:system:[^"]+|cluster-admin|kubeadm:[^"]+)" of ClusterRole "(?:system:[^"]+|cluster-admin|kubeadm:[^"]+)" to (?:User|Group|ServiceAccount) "([^"]+)"$`)

// checkReason demands that the audit event gives the right reason for the final decision: RBAC names the binding that
// allows, a refusal has the text of the answer, and a request that never reached authorization has none. Of
// authentication it demands that the event notes only that a token is stale, and only where it is.
//
// Source: WithAuthorization in k8s.io/apiserver/pkg/endpoints/filters/authorization.go; k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/rbac.go.
func (v *stepJudge) checkReason() {
	if v.event == nil || v.event.Stage == auditv1.StagePanic {
		return
	}
	got, isThere := v.event.Annotations[reasonAnnotation]
	if !isThere {
		got = noReason
	}
	want := v.expectedReason(got)
	v.compare("audit.reason", want, textIf(want == anyReason, want, got))
	v.checkStaleToken()
	for _, key := range slices.Sorted(maps.Keys(v.event.Annotations)) {
		if strings.HasPrefix(key, "authentication.k8s.io/") && key != staleAnnotation {
			v.compare("audit.annotations", noReason, key+": "+v.event.Annotations[key])
		}
	}
}

// expectedReason returns the reason that the event has to give. It returns got if that is a possible reason.
func (v *stepJudge) expectedReason(got string) string {
	switch v.event.Annotations[decisionAnnotation] {
	case "allow":
		return v.expectedReasonToAllow(got)
	case "forbid":
		return v.expectedReasonToForbid(got)
	}
	endedAtImpersonation := len(impersonationHeaders(v.o.Request)) > 0 && v.event.ImpersonatedUser == nil
	if v.o.Response.Code == codeServerError && !endedAtImpersonation {
		return failedReason
	}
	return noReason
}

// staleAnnotation is set for a token that should have been replaced before now (validator.Validate of claims.go).
const staleAnnotation = "authentication.k8s.io/stale-token"

// checkStaleToken demands that the event says how stale the requestor's token is if the scenario has made it stale, and
// nothing otherwise.
//
// Source: validator.Validate in k8s.io/kubernetes/pkg/serviceaccount/claims.go.
func (v *stepJudge) checkStaleToken() {
	got := v.event.Annotations[staleAnnotation]
	sa := v.requestor.ServiceAccount
	if sa == nil || sa.At("warnafter") >= 0 {
		if got != "" {
			v.compare("audit.annotations", noReason, got)
		}
		return
	}
	since, text := -sa.At("warnafter"), "subject: "+v.requestor.Username()+", seconds after warning threshold: "
	seconds, err := strconv.Atoi(strings.TrimPrefix(got, text))
	age := time.Duration(seconds) * time.Second
	isInTime := age >= since && age < since+time.Hour
	if err != nil || !isInTime {
		v.compare("audit.annotations", fmt.Sprintf("%s%.0f or a little more", text, since.Seconds()), cmp.Or(got, noReason))
	}
}

// expectedReasonToAllow returns the reason for which the scenario's grants allow the request. It returns got if that is
// one of them.
func (v *stepJudge) expectedReasonToAllow(got string) string {
	u := effectiveUser(v.event)
	if slices.Contains(u.Groups, user.SystemPrivilegedGroup) {
		return "" // its members pass before every authorizer
	}
	address, err := url.Parse(v.o.Request.URL)
	if err != nil || v.mayOthersAllow() {
		return textIf(got == noReason, "a reason", anyReason)
	}
	info, err := scenarios.RequestInfo(v.o.Request.Method, address)
	if err != nil {
		return anyReason
	}
	if reason, ok := v.reasonOfWebhook(u.Username, info); ok {
		return reason
	}
	if m := builtinReason.FindStringSubmatch(got); m != nil && isSubject(u, m[1]) {
		return got
	}
	reasons := v.s.AllowedBy(specOfRequest(u, info))
	isOfNodeAuthorizer := got == "" &&
		slices.Contains(u.Groups, user.NodesGroup) // the Node authorizer stands before RBAC and gives no reason
	if isOfNodeAuthorizer || slices.Contains(reasons, got) {
		return got
	}
	return cmp.Or(strings.Join(reasons, ", or "), "that of a binding which every cluster has")
}

// effectiveUser returns the user as whom the request of an event was authorized.
func effectiveUser(ev *auditv1.Event) authenticationv1.UserInfo {
	if ev.ImpersonatedUser != nil {
		return *ev.ImpersonatedUser
	}
	return ev.User
}

// mayOthersAllow reports whether the request may have been allowed by another authorizer than RBAC and a webhook that
// only follows the rules, or the scenario has changed roles. Then the reason cannot be predicted.
func (v *stepJudge) mayOthersAllow() bool {
	isOtherChain := v.s.Requires.Chain != "" && !v.isOnlyRules()
	return isOtherChain || v.e.Authorizer || escalates(v.s, v.index)
}

// reasonOfWebhook returns the reason that the scripted webhook gives by its rules, if it allowed the request.
func (v *stepJudge) reasonOfWebhook(name string, info *request.RequestInfo) (reason string, ok bool) {
	for _, r := range v.o.Reviews {
		isAllowed := r.Point == Policy && r.Decision == scenarios.Allow
		isOfRequest := r.Spec.User == name && isAboutRequest(r.Spec.ResourceAttributes, info)
		if isAllowed && isOfRequest {
			return v.findRule(r).Reason, true
		}
	}
	return "", false
}

// isAboutRequest reports whether a review asks for what a resource request does. It does not compare API groups and
// versions.
func isAboutRequest(a *authorizationv1.ResourceAttributes, info *request.RequestInfo) bool {
	if a == nil || !info.IsResourceRequest {
		return false
	}
	type action struct{ verb, resource, subresource, namespace, name string }
	return action{a.Verb, a.Resource, a.Subresource, a.Namespace, a.Name} ==
		action{info.Verb, info.Resource, info.Subresource, info.Namespace, info.Name}
}

// specOfRequest returns the access review that asks whether a user may make a request.
func specOfRequest(u authenticationv1.UserInfo, info *request.RequestInfo) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Username, Groups: u.Groups}
	if !info.IsResourceRequest {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: info.Verb, Path: info.Path}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name,
	}
	return spec
}

// isSubject reports whether a binding's subject, as RBAC names it, is a user or one of the user's groups.
func isSubject(u authenticationv1.UserInfo, subject string) bool {
	if subject == u.Username || slices.Contains(u.Groups, subject) {
		return true
	}
	ns, name, ok := scenarios.SplitServiceAccount(u.Username)
	return ok && subject == name+"/"+ns
}

// expectedReasonToForbid returns the end of the answer's message that follows its fixed part, which ends with a quoted
// name or with "at the cluster scope". It returns got if the message ends with it.
func (v *stepJudge) expectedReasonToForbid(got string) string {
	st := v.status
	if st == nil || v.event.Verb == "watch" {
		return textIf(got == noReason, "a reason", anyReason)
	}
	if got != "" && strings.HasSuffix(st.Message, ": "+got) {
		return got
	}
	if at := strings.LastIndex(st.Message, " cannot "); at >= 0 && refusalWithoutReason.MatchString(st.Message[at:]) {
		return ""
	}
	return "the end of the answer's message"
}

// refusalWithoutReason matches the end of a refusal that gives no reason.
var refusalWithoutReason = regexp.MustCompile(`^ cannot \S* (?:resource "[^"]*" in API group "[^"]*" (?:at the cluster scope|in the namespace "[^"]*")|path ".*")$`)

// allowingBinding finds the subject that RBAC names when it allows, and refusedUser finds the user whom a refusal
// names. Both names are quoted as in Go.
var (
	allowingBinding = regexp.MustCompile(`^RBAC: allowed by .* to (?:User|Group|ServiceAccount) ("(?:[^"\\]|\\.)*")$`)
	refusedUser     = regexp.MustCompile(`: User ("(?:[^"\\]|\\.)*") cannot (\w+)`)
)

// FindContradiction returns how an audit event contradicts itself about who asked and what was decided, or "" if it
// does not. The event has to be of an API server on which only RBAC authorizes.
func FindContradiction(e *auditv1.Event) string {
	s := statementOf(e)
	contradicts := s.isAllowedWithoutCause() || s.isReasonMisplaced() || s.isAnotherRefused() || s.isDecidedForNobody()
	if !contradicts {
		return ""
	}
	return fmt.Sprintf(
		"the event %s is of %q in the groups %q, was decided %q for the reason %q, and answered %q",
		e.AuditID,
		s.user.Username,
		s.user.Groups,
		s.decision,
		s.reason,
		s.message,
	)
}

// statement is what an audit event says of a decision.
type statement struct {
	user                      authenticationv1.UserInfo // the user as whom the request was authorized
	decision, reason, message string                    // the annotations, and the message of the answer
	refusal                   []string                  // what the expression refusedUser finds in the message
}

// statementOf returns what an audit event says of a decision.
func statementOf(e *auditv1.Event) statement {
	s := statement{user: effectiveUser(e), decision: e.Annotations[decisionAnnotation], reason: e.Annotations[reasonAnnotation]}
	if e.ResponseStatus != nil {
		s.message = e.ResponseStatus.Message
	}
	s.refusal = refusedUser.FindStringSubmatch(s.message)
	return s
}

// isAllowedWithoutCause reports whether a request was allowed and nevertheless refused, or was allowed for a reason
// that is not possible. Members of system:masters are allowed without a reason, all others by a binding that names
// them.
func (s statement) isAllowedWithoutCause() bool {
	if s.decision != "allow" {
		return false
	}
	if s.refusal != nil {
		return true
	}
	if slices.Contains(s.user.Groups, user.SystemPrivilegedGroup) {
		return s.reason != ""
	}
	binding := allowingBinding.FindStringSubmatch(s.reason)
	if binding == nil {
		return true
	}
	subject, err := strconv.Unquote(binding[1])
	return err != nil || !isSubject(s.user, subject)
}

// isReasonMisplaced reports whether an event gives a reason although the request was not allowed. A request that was
// not decided may say that it failed: its client had gone.
func (s statement) isReasonMisplaced() bool {
	if s.decision == "allow" || s.reason == "" {
		return false
	}
	hasFailed := s.decision == "" && s.reason == failedReason
	return !hasFailed
}

// isAnotherRefused reports whether the answer refuses somebody else, refuses an impersonation although the request was
// decided about, or refuses another verb although it was not.
func (s statement) isAnotherRefused() bool {
	if s.refusal == nil {
		return false
	}
	isUndecided, isImpersonation := s.decision == "", s.refusal[2] == "impersonate"
	return s.refusal[1] != scenarios.EscapeMessage(strconv.Quote(s.user.Username)) || isUndecided != isImpersonation
}

// isDecidedForNobody reports whether there is a decision about a user without a name.
func (s statement) isDecidedForNobody() bool { return s.decision != "" && s.user.Username == "" }
