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
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	"github.com/authzconf/authzconf/scenarios"
)

// annotation matches the annotations that Kubernetes gives to audit events.
var annotation = regexp.MustCompile(`^(authorization\.k8s\.io/(decision|reason)|apiserver\.latency\.k8s\.io/.+|authentication\.(k8s|kubernetes)\.io/.+|pod-security\.kubernetes\.io/.+|k8s\.io/(deprecated|removed-release)|[a-z.]+\.admission\.k8s\.io/.+)$`)

// envelope judges what an audit event has to be whatever it is about: of the API type and the level that the policy asks
// for, not from before the request, with the status of the answer, and with no field that nobody knows.
func (v *stepJudge) envelope(field string, raw json.RawMessage) {
	var ev auditv1.Event
	strict, err := kjson.UnmarshalStrict(raw, &ev)
	if err = errors.Join(append(strict, err)...); err != nil {
		v.compare(field+" (fields)", "known ones", err.Error())
		return
	}
	level := scenarios.AuditLevel(v.requestor.Groups)
	v.compare(field+" (type)", "Event of audit.k8s.io/v1, "+level, fmt.Sprintf("%s of %s, %s", ev.Kind, ev.APIVersion, ev.Level))
	v.objects(field, &ev, level)
	v.timed(field, &ev)
	odd := slices.DeleteFunc(slices.Sorted(maps.Keys(ev.Annotations)), annotation.MatchString)
	v.compare(field+".annotations", "none of unknown names", orElse(len(odd) == 0, "none of unknown names", scenarios.List(odd)))
}

// ClockTolerance is how far the clocks of the API server and of who sends requests may be apart.
const ClockTolerance = 2 * time.Second

// objects judges what an event has of the bodies: nothing at Metadata; from Request on what was sent, if that was read,
// and at RequestResponse a Status that is the answer.
func (v *stepJudge) objects(field string, ev *auditv1.Event, level string) {
	sent, answered := ev.RequestObject, ev.ResponseObject
	higher := sent != nil && (level == scenarios.AuditMetadata || v.o.Request.Body == nil) || answered != nil && level != scenarios.AuditResponse
	v.compare(field+" (objects)", noReason, orElse(!higher, noReason, "those of a higher level"))
	if level == scenarios.AuditResponse && ev.ObjectRef != nil && v.status != nil && ev.Stage == auditv1.StageResponseComplete {
		got := string(ptr.Deref(answered, runtime.Unknown{}).Raw)
		v.compare(field+" (answer)", v.o.Response.Body, orElse(sameJSON(json.RawMessage(v.o.Response.Body), json.RawMessage(got)), v.o.Response.Body, got))
	}
}

// timed judges the times of an audit event: they are those of the request, the end later than its beginning. How long after the
// answer an event may be of is open, for a busy machine; an hour it is not.
func (v *stepJudge) timed(field string, ev *auditv1.Event) {
	const within = "of the request"
	received, ended := ev.RequestReceivedTimestamp.Time, ev.StageTimestamp.Time
	first, last := v.o.Sent.Add(-ClockTolerance), v.o.Answered.Add(ClockTolerance)
	if v.e.Capabilities.Foreign() || v.o.Sent.IsZero() || received.IsZero() {
		first, last = received, received // the clock is another one
	}
	v.compare(field+".requestReceivedTimestamp", within, orElse(received.Before(first) || received.After(last), "at another time", within))
	late := last != received && ended.After(last.Add(time.Hour/2))
	v.compare(field+".stageTimestamp", "not before the request", orElse(ended.Before(received) || late, "at another time", "not before the request"))
}

// answered judges what every answer must be: a Status says the code it came with, a review's answer has what was asked.
func (v *stepJudge) answered() {
	if st := v.status; st != nil && v.o.Response.Code >= codeBadRequest {
		v.compare("status", fmt.Sprintf("%s of v1, %d", metav1.StatusFailure, v.o.Response.Code), fmt.Sprintf("%s of %s, %d", st.Status, st.APIVersion, st.Code))
	}
	var asked, told struct{ Spec, Kind any }
	if v.o.Response.Code == codeCreated && json.Unmarshal(v.o.Request.Body, &asked) == nil && asked.Spec != nil &&
		json.Unmarshal([]byte(v.o.Response.Body), &told) == nil && reviewKind.MatchString(fmt.Sprint(asked.Kind)) {
		v.compare("spec of the answer", "what was asked", orElse(within(asked.Spec, told.Spec), "what was asked", fmt.Sprintf("%v", told.Spec)))
	}
	v.passedOn()
	if v.request.Hold && v.o.Response.Code == codeOK {
		v.compare("watch", Open, cmp.Or(v.o.Response.Held, "not kept open"))
	}
	switch {
	case v.o.Response.Code != codeCreated:
	case v.request.Reviewed() != "":
		v.reviewed()
	case asked.Kind == "TokenRequest":
		v.minted()
	}
}

// reviewKind matches the kinds of reviews whose answer repeats the question: that of SelfSubjectRulesReview does not.
var reviewKind = regexp.MustCompile(`^[A-Za-z]+(Access|Token)Review$`)

// within says whether all of a JSON value is in another one, which may have more fields.
func within(a, b any) bool {
	fields, ok := a.(map[string]any)
	if !ok {
		return reflect.DeepEqual(a, b)
	}
	of, _ := b.(map[string]any)
	for name := range fields {
		if !within(fields[name], of[name]) {
			return false
		}
	}
	return true
}

// scripted judges that the scripted webhook answered as the scenario's rules say, which is not the API server's doing, and
// that what arrived is of a kind that the recorder writes.
func (v *stepJudge) scripted() (problem string) {
	points, plain := map[string]int{}, v.plainly()
	for _, r := range v.o.Reviews {
		points[r.Point]++
		rule, answers := v.rule(r), map[scenarios.PolicyAnswer]scenarios.Decision{"": scenarios.NoOpinion, scenarios.AnswerNoOpinion: scenarios.NoOpinion, scenarios.AnswerAllow: scenarios.Allow, scenarios.AnswerDeny: scenarios.Deny, scenarios.AnswerBoth: scenarios.Deny}
		want, known := answers[rule.Answer] // of what is no answer, the failure policy decides
		switch {
		case r.APIVersion != "authorization.k8s.io/v1" || !slices.Contains([]string{Front, Back, Policy}, r.Point):
			return fmt.Sprintf("a review of %q arrived at %q", r.APIVersion, r.Point)
		case r.Point != Policy && cmp.Or(r.Decision, scenarios.NoOpinion) != scenarios.NoOpinion && !v.e.Authorizer || r.Point == Policy && known && r.Decision != want && plain:
			return fmt.Sprintf("the webhook at %q is said to have answered %q to %s, by the scenario %q", r.Point, r.Decision, describe(r.Spec), want)
		}
	}
	if v.s.Requires.Chain == "webhook-first" && plain { // which is asked again where it breaks
		v.compare("reviews (at the webhook)", strconv.Itoa(points[Front]), strconv.Itoa(min(points[Front], points[Policy])))
	}
	return ""
}

// plainly says that the webhook is asked everything, and nothing but the scenario's rules decides what it answers: the
// scenario does not take it away or put it elsewhere, and it has no conditions.
func (v *stepJudge) plainly() bool {
	return slices.Contains([]string{"webhook-first", "webhook-last"}, v.s.Requires.Chain) &&
		!slices.ContainsFunc(v.s.Steps[:v.index+1], func(st scenarios.Step) bool { return st.Reload != "" })
}

// rule is the one by which the scripted webhook answers a review; empty if there is none.
func (v *stepJudge) rule(r Review) (rule scenarios.PolicyRule) {
	if i := slices.IndexFunc(v.s.Policy, func(p scenarios.PolicyRule) bool { return p.For.Covers(r.Spec) }); i >= 0 {
		rule = v.s.Policy[i]
	}
	return rule
}

const (
	// reasonAnnotation says why the final decision is as it is.
	reasonAnnotation = "authorization.k8s.io/reason"
	failedReason     = "internal error" // said where the authorizers broke, whatever broke
	anyReason        = "any"            // wanted where an authorizer may say what it likes
	noReason         = "none"
)

// builtin is what RBAC says where a binding allows that every cluster has.
var builtin = regexp.MustCompile(`^RBAC: allowed by ClusterRoleBinding "(?:system:[^"]+|cluster-admin|kubeadm:[^"]+)" of ClusterRole "(?:system:[^"]+|cluster-admin|kubeadm:[^"]+)" to (?:User|Group|ServiceAccount) "([^"]+)"$`)

// reason judges what the audit event says of why the final decision is as it is: RBAC names the binding that allows,
// a refusal has the text of the answer, and of what never got so far there is nothing.
func (v *stepJudge) reason() {
	if v.event == nil || v.event.Stage == auditv1.StagePanic {
		return
	}
	got, there := v.event.Annotations[reasonAnnotation]
	if !there {
		got = noReason
	}
	want := noReason
	switch v.event.Annotations[decisionAnnotation] {
	case "allow":
		want = v.allowedBy(got)
	case "forbid":
		want = v.refusal(got)
	default:
		attempted := len(impersonationHeaders(v.o.Request)) > 0 && v.event.ImpersonatedUser == nil
		if v.o.Response.Code == codeServerError && !attempted {
			want = failedReason
		}
	}
	v.compare("audit.reason", want, orElse(want == anyReason, want, got))
	// The API server says so of a token that is stale or of an old kind; those of requestors are neither, unless a
	// scenario has made one stale.
	if want, got := v.stale(); want != got {
		v.compare("audit.annotations", want, orElse(got != "", got, noReason))
	}
	for _, key := range slices.Sorted(maps.Keys(v.event.Annotations)) {
		if strings.HasPrefix(key, "authentication.k8s.io/") && key != staleAnnotation {
			v.compare("audit.annotations", noReason, key+": "+v.event.Annotations[key])
		}
	}
}

// staleAnnotation is there for a token that was to be replaced before now (validator.Validate of claims.go).
const staleAnnotation = "authentication.k8s.io/stale-token"

// stale is what the API server should say of the age of the requestor's token, and what it says.
func (v *stepJudge) stale() (want, got string) {
	got = v.event.Annotations[staleAnnotation]
	sa := v.requestor.ServiceAccount
	if sa == nil || sa.At("warnafter") >= 0 {
		return orElse(got == "", "", noReason), got
	}
	since, text := -sa.At("warnafter"), "subject: "+v.requestor.Username()+", seconds after warning threshold: "
	want = fmt.Sprintf("%s%.0f or a little more", text, since.Seconds())
	seconds, err := strconv.Atoi(strings.TrimPrefix(got, text))
	if said := time.Duration(seconds) * time.Second; err == nil && said >= since && said < since+time.Hour {
		return want, want
	}
	return want, got
}

// allowedBy is the reason for which the scenario's grants allow the request. It is got itself if that can be one.
func (v *stepJudge) allowedBy(got string) string {
	u := v.event.User
	if v.event.ImpersonatedUser != nil {
		u = *v.event.ImpersonatedUser
	}
	if slices.Contains(u.Groups, user.SystemPrivilegedGroup) {
		return "" // before every authorizer
	}
	address, err := url.Parse(v.o.Request.URL)
	if err != nil || v.s.Requires.Chain != "" && !v.plainly() || v.e.Authorizer || escalates(v.s, v.index) {
		return orElse(got == noReason, "a reason", anyReason)
	}
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.Username, Groups: u.Groups}
	info, err := scenarios.RequestInfo(v.o.Request.Method, address)
	switch {
	case err != nil:
		return anyReason
	case info.IsResourceRequest:
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
			Namespace: info.Namespace, Name: info.Name,
		}
	default:
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: info.Verb, Path: info.Path}
	}
	for _, r := range v.o.Reviews {
		if a := r.Spec.ResourceAttributes; r.Point == Policy && r.Decision == scenarios.Allow && r.Spec.User == u.Username && a != nil && info.IsResourceRequest &&
			a.Verb == info.Verb && a.Resource == info.Resource && a.Subresource == info.Subresource && a.Namespace == info.Namespace && a.Name == info.Name {
			return v.rule(r).Reason
		}
	}
	if m := builtin.FindStringSubmatch(got); m != nil && is(u, m[1]) {
		return got
	}
	all := v.s.AllowedBy(spec)
	// The Node authorizer stands before RBAC, and allows without a word.
	if slices.Contains(all, got) || got == "" && slices.Contains(u.Groups, user.NodesGroup) {
		return got
	}
	return cmp.Or(strings.Join(all, ", or "), "that of a binding which every cluster has")
}

// is says whether a binding's subject, as RBAC names it, is a user.
func is(u authenticationv1.UserInfo, subject string) bool {
	ns, name, ok := scenarios.SplitServiceAccount(u.Username)
	return subject == u.Username || slices.Contains(u.Groups, subject) || ok && subject == name+"/"+ns
}

// refusal is what stands behind the base of the answer's message, which ends with a quoted name, or at the cluster scope.
func (v *stepJudge) refusal(got string) string {
	st := v.status
	if st == nil || v.event.Verb == "watch" {
		return orElse(got == noReason, "a reason", anyReason)
	}
	if got != "" && strings.HasSuffix(st.Message, ": "+got) {
		return got
	}
	if at := strings.LastIndex(st.Message, " cannot "); at >= 0 && forbiddenEnd.MatchString(st.Message[at:]) {
		return ""
	}
	return "the end of the answer's message"
}

// forbiddenEnd matches the end of a refusal without a reason.
var forbiddenEnd = regexp.MustCompile(`^ cannot \S* (?:resource "[^"]*" in API group "[^"]*" (?:at the cluster scope|in the namespace "[^"]*")|path ".*")$`)

// allowing and refusing find whom RBAC says that it allowed, and whom a refusal names.
var (
	allowing = regexp.MustCompile(`^RBAC: allowed by .* to (?:User|Group|ServiceAccount) "([^"]*)"$`)
	refusing = regexp.MustCompile(`: User ("(?:[^"\\]|\\.)*") cannot (\w+)`)
)

// Contradicts says how an audit event of an API server with RBAC alone contradicts itself about who asked and what was
// decided; or nothing.
func Contradicts(e *auditv1.Event) string {
	u, decision, message := e.User, e.Annotations[decisionAnnotation], ""
	if e.ImpersonatedUser != nil {
		u = *e.ImpersonatedUser
	}
	if e.ResponseStatus != nil {
		message = e.ResponseStatus.Message
	}
	reason, by := e.Annotations[reasonAnnotation], allowing.FindStringSubmatch(e.Annotations[reasonAnnotation])
	no, masters := refusing.FindStringSubmatch(message), slices.Contains(u.Groups, user.SystemPrivilegedGroup)
	switch {
	case decision == "allow" && (no != nil || masters != (reason == "") || !masters && (by == nil || !is(u, by[1]))):
	case decision != "allow" && reason != "" && (decision != "" || reason != failedReason): // the client had gone
	case no != nil && (no[1] != strconv.Quote(u.Username) || (decision == "") != (no[2] == "impersonate")):
	case decision != "" && u.Username == "":
	default:
		return ""
	}
	return fmt.Sprintf("the event %s is of %q in the groups %q, was decided %q for the reason %q, and answered %q", e.AuditID, u.Username, u.Groups, decision, reason, message)
}
