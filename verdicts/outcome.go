package verdicts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/scenarios"
)

// refusalMessage matches the messages that forbiddenMessage makes in
// k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
var refusalMessage = regexp.MustCompile(`User "([^"]*)" cannot (\S+) (?:resource|path) `)

// These are the HTTP status codes by which outcomes are told apart (RFC 9110, RFC 6585).
const (
	codeOK               = 200
	codeCreated          = 201
	codeBadRequest       = 400
	codeUnauthorized     = 401
	codeForbidden        = 403
	codeNotFound         = 404
	codeMethodNotAllowed = 405
	codeHeadersTooLarge  = 431
	codeServerError      = 500
)

const (
	// decisionAnnotation is set by WithAuthorization, and therefore only on requests that got past impersonation.
	decisionAnnotation = scenarios.DecisionAnnotation
	escalationText     = "is attempting to grant RBAC permissions not currently held"
	noUserText         = "without impersonating a user"
)

// StatusOf decodes the metav1.Status of an answer. It returns nil if the body is something else.
func StatusOf(r Response) *metav1.Status {
	var st metav1.Status
	if err := json.Unmarshal([]byte(r.Body), &st); err != nil || st.Kind != "Status" {
		return nil
	}
	return &st
}

// AuditOf decodes the audit event of an observation. It returns nil if there is none.
func AuditOf(o *Observation) *auditv1.Event {
	if len(o.Audit) == 0 {
		return nil
	}
	var ev auditv1.Event
	if err := json.Unmarshal(o.Audit, &ev); err != nil {
		return nil
	}
	return &ev
}

// OutcomeOf classifies an answer by its code and text alone. It returns "" where these are not enough (a 400 or a 5xx
// that does not mention impersonation): then the audit event decides.
func OutcomeOf(r Response) scenarios.Outcome { return outcomeOfAnswer(r.Code, StatusOf(r)) }

// outcomeOfAnswer does the same as OutcomeOf for a status that is already decoded.
func outcomeOfAnswer(code int, status *metav1.Status) scenarios.Outcome {
	message := ptr.Deref(status, metav1.Status{}).Message
	switch {
	case code == codeUnauthorized:
		return scenarios.Unauthenticated
	case code == codeHeadersTooLarge:
		return scenarios.HeadersTooLarge
	case code == codeForbidden:
		return forbiddenOutcome(message)
	case code == codeBadRequest && strings.Contains(message, noUserText):
		return scenarios.BadRequest
	case code == codeBadRequest, code >= 500, code == 0:
		return ""
	default:
		return scenarios.Allowed
	}
}

// forbiddenOutcome returns which of the three kinds of 403 an answer is, by its text.
func forbiddenOutcome(message string) scenarios.Outcome {
	if m := refusalMessage.FindStringSubmatch(message); m != nil {
		if _, ok := scenarios.ImpersonationMode(m[2]); ok {
			return scenarios.ImpersonationForbidden
		}
		return scenarios.RequestForbidden
	}
	if strings.Contains(message, escalationText) {
		return scenarios.EscalationForbidden
	}
	return scenarios.RequestForbidden
}

// expectedAnnotation is the value that the audit annotation authorization.k8s.io/decision must have for an outcome.
var expectedAnnotation = map[scenarios.Outcome]string{
	scenarios.Allowed: "allow", scenarios.EscalationForbidden: "allow", scenarios.RequestForbidden: "forbid",
}

// outcomeFromAudit classifies an answer whose text does not show the outcome.
func outcomeFromAudit(code int, ev *auditv1.Event) scenarios.Outcome {
	if ev != nil && ev.Annotations[decisionAnnotation] == "allow" {
		return scenarios.Allowed
	}
	if code == codeBadRequest {
		return scenarios.BadRequest
	}
	return scenarios.ServerError
}

// checkEvent demands that there is one audit event and that it describes the request truly: the request that was sent,
// who sent it, and the answer that came.
//
// Source: the type Event of audit.k8s.io/v1; k8s.io/apiserver/pkg/audit/request.go.
func (v *stepJudge) checkEvent() {
	ev := v.event
	if ev == nil {
		return
	}
	defer v.checkEnvelope("audit", v.o.Audit) // its differences are listed after those below
	v.compare(eventsField, "one", textIf(len(v.o.AuditAgain) == 0, "one", "another one behind it"))
	address, err := url.Parse(v.o.Request.URL)
	if err != nil {
		address = &url.URL{Path: v.o.Request.URL}
	}
	info, err := scenarios.RequestInfo(v.o.Request.Method, address)
	if err != nil {
		return // the API server answers such a request with an error, which the scenario states
	}
	user, stage, agent := v.authenticatedUser().Render(), auditv1.StageResponseComplete, v.o.Request.UserAgent
	if len(agent) > agentLimit {
		agent = agent[:agentLimit] + "...TRUNCATED"
	}
	if v.o.Response.Code == codeUnauthorized {
		user, stage = scenarios.User{}.Render(), auditv1.StageResponseStarted
	}
	if st := v.status; st != nil && v.o.Response.Code == codeForbidden {
		v.compare("reason", string(metav1.StatusReasonForbidden), string(st.Reason))
	}
	// A long-running request ends with a status that only the event has, and HEAD is answered without a body.
	mayDiffer := v.o.Request.IsLongRunning() || v.o.Request.Method == "HEAD"
	isStatusKnown := v.status != nil || !mayDiffer
	if isStatusKnown && stage == ev.Stage {
		v.compare(
			"audit.responseStatus",
			renderStatus(ptr.Deref(v.status, metav1.Status{})),
			renderStatus(ptr.Deref(ev.ResponseStatus, metav1.Status{})),
		)
	}
	v.checkStartedEvent()
	for _, c := range []struct{ field, want, got string }{
		{"audit.auditID", v.o.Response.AuditID, string(ev.AuditID)},
		{"audit.stage", string(stage), string(ev.Stage)},
		{"audit.verb", info.Verb, ev.Verb},
		{"audit.requestURI", v.o.Request.URL, ev.RequestURI},
		{"audit.userAgent", agent, ev.UserAgent},
		{"audit.sourceIPs", strings.Join(v.expectedSources(ev.SourceIPs), " "), strings.Join(ev.SourceIPs, " ")},
		{"audit.user", user, scenarios.UserOf(ev.User.Username, ev.User.UID, ev.User.Groups, ev.User.Extra).Render()},
		{"audit.objectRef", v.expectedObject(info, ev), renderObject(ev.ObjectRef)},
		{"audit.responseStatus.code", strconv.Itoa(v.o.Response.Code), strconv.Itoa(int(ptr.Deref(ev.ResponseStatus, metav1.Status{}).Code))},
	} {
		v.compare(c.field, c.want, c.got)
	}
}

// renderStatus returns everything in a Status on one line, except for its code, which is compared by itself.
func renderStatus(st metav1.Status) string {
	isEmpty := st.Status == "" && st.Reason == "" && st.Message == "" && st.Details == nil
	if isEmpty {
		return noReason
	}
	d, more := ptr.Deref(st.Details, metav1.StatusDetails{}), ""
	if d.UID != "" || len(d.Causes) > 0 || d.RetryAfterSeconds != 0 {
		more = fmt.Sprintf(", UID %q, causes %v, again after %d s", d.UID, d.Causes, d.RetryAfterSeconds)
	}
	return fmt.Sprintf("%s %s: %s (%s %q of %q%s)", st.Status, st.Reason, st.Message, d.Kind, d.Name, d.Group, more)
}

// checkRefusal demands that the details of a refusal by an authorizer agree with the beginning of its message, and that
// its status is a failure.
//
// Source: NewForbidden in k8s.io/apimachinery/pkg/api/errors/errors.go.
func (v *stepJudge) checkRefusal() {
	st := StatusOf(v.o.Response)
	if st == nil || v.o.Response.Code != codeForbidden || !refusalMessage.MatchString(st.Message) {
		return
	}
	d := ptr.Deref(st.Details, metav1.StatusDetails{})
	if strings.ContainsRune(d.Name, utf8.RuneError) {
		return // the rune replaces bytes that JSON cannot have, and that the message quotes
	}
	resource := schema.GroupResource{Group: d.Group, Resource: d.Kind}
	head := apierrors.NewForbidden(resource, d.Name, errors.New("")).ErrStatus.Message
	want := apierrors.NewForbidden(resource, d.Name, errors.New(strings.TrimPrefix(st.Message, head))).ErrStatus
	v.compare("refusal", renderStatus(want), renderStatus(*st))
}

// checkStartedEvent demands that the event which was written when the answer began says the same as the last one. While
// the request runs, it is the only event.
//
// Source: the reference page on auditing, the stage ResponseStarted.
func (v *stepJudge) checkStartedEvent() {
	if len(v.o.AuditStarted) == 0 {
		return
	}
	render := func(ev *auditv1.Event) string {
		if ev == nil {
			return noReason
		}
		ev.Annotations = map[string]string{
			decisionAnnotation: ev.Annotations[decisionAnnotation],
			reasonAnnotation:   ev.Annotations[reasonAnnotation],
		}
		ev.Stage, ev.StageTimestamp, ev.ResponseStatus = "", metav1.MicroTime{}, &metav1.Status{
			Code: ptr.Deref(ev.ResponseStatus, metav1.Status{}).Code,
		}
		text, err := json.Marshal(ev)
		return textIf(err == nil, string(text), noReason)
	}
	defer v.checkEnvelope("audit as the answer begins", v.o.AuditStarted)
	startedStage := ptr.Deref(AuditOf(&Observation{Audit: v.o.AuditStarted}), auditv1.Event{}).Stage
	defer v.compare("audit.stage as the answer begins", string(auditv1.StageResponseStarted), string(startedStage))
	v.compare("audit as the answer begins", render(AuditOf(v.o)), render(AuditOf(&Observation{Audit: v.o.AuditStarted})))
}

// agentLimit is the length in bytes beyond which a user agent is cut off in audit events (maybeTruncateUserAgent in
// k8s.io/apiserver).
const agentLimit = 1024

// loopback is the address from which a control plane on this machine gets its requests.
const loopback = "127.0.0.1"

// expectedSources returns the addresses from which a request must have come: those in its headers, and at the end its
// own (SourceIPs in k8s.io/apimachinery/pkg/util/net). The own address may be any on clusters on other machines.
func (v *stepJudge) expectedSources(got []string) (want []string) {
	add := func(text string) {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			want = append(want, ip.String())
		}
	}
	headers := textproto.MIMEHeader(v.o.Request.Headers)
	for ip := range strings.SplitSeq(headers.Get("X-Forwarded-For"), ",") {
		add(ip)
	}
	if ip := headers.Get("X-Real-Ip"); !slices.Contains(want, ip) {
		add(ip)
	}
	peer := loopback
	if !v.e.Capabilities.Processes() && len(got) > 0 {
		peer = got[len(got)-1]
	}
	if n := len(want); n == 0 || want[n-1] != peer {
		add(peer)
	}
	return want
}

// expectedObject returns the object that a request is about. If the path has no name, the name is that of the body once
// the API server has read it.
func (v *stepJudge) expectedObject(info *request.RequestInfo, ev *auditv1.Event) string {
	if !info.IsResourceRequest {
		return renderObject(nil)
	}
	ref := &auditv1.ObjectReference{
		Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
		APIGroup: info.APIGroup, APIVersion: info.APIVersion,
	}
	var body struct {
		Metadata struct{ Name, UID, ResourceVersion string }
	}
	hasName := ev.ObjectRef != nil && ev.ObjectRef.Name != ""
	if hasName && json.Unmarshal(v.o.Request.Body, &body) == nil {
		ref.Name = cmp.Or(ref.Name, body.Metadata.Name)
		ref.UID, ref.ResourceVersion = types.UID(body.Metadata.UID), body.Metadata.ResourceVersion
	}
	return renderObject(ref)
}

// renderObject returns a reference to an object on one line.
func renderObject(r *auditv1.ObjectReference) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf(
		"%s/%s of %s/%s, %q in %q %s",
		r.Resource,
		r.Subresource,
		r.APIGroup,
		r.APIVersion,
		r.Name,
		r.Namespace,
		string(r.UID)+r.ResourceVersion,
	)
}

// renderImpersonatedUser returns the impersonated user of an event on one line.
func renderImpersonatedUser(ev *auditv1.Event) string {
	u := ev.ImpersonatedUser
	if u == nil {
		return noImpersonation
	}
	return scenarios.UserOf(u.Username, u.UID, u.Groups, u.Extra).Render()
}
