package oracle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// stage is one part of what a mode checks about the wanted user: the name, the UID, the groups or the extra.
type stage struct {
	refusals []string // the possible texts with which it is refused unasked
	// all, if given, is asked first; if it is allowed, runs are not asked.
	all  *question
	runs [][]question // asked in order; several are in any order
}

type question struct {
	mode Mode
	user scenarios.User
	Attributes
}

type asker struct {
	*Server
	// by says whose permission is asked.
	by scenarios.By
	// plain is for servers without the gate, whose filter ends at an error, and leaves its text out.
	plain bool
}

// ask puts a question to the authorizers.
func (k asker) ask(q question) Review {
	spec := q.review(q.user)
	r := Review{By: k.by, Mode: q.mode, Spec: spec}
	r.Answer, r.Hidden = k.authorize(spec)
	if k.plain && r.Answer.Err != "" {
		r.Answer.Decision = scenarios.NoOpinion
	}
	if !r.Allowed() {
		r.text = k.denial(r)
	}
	return r
}

// askStages asks what a mode checks, as far as to the first denial.
func (k asker) askStages(at *Attempt, list []stage) {
	for _, st := range list {
		if at.Messages = k.askStage(at, st); len(at.Messages) > 0 {
			break
		}
	}
	at.Allowed = len(at.Messages) == 0
}

// askStage asks one part; messages are the texts with which it can be refused.
func (k asker) askStage(at *Attempt, st stage) (messages []string) {
	if len(st.refusals) > 0 {
		at.Refused = true
		return st.refusals
	}
	if st.all != nil {
		r := k.ask(*st.all)
		at.Segments = append(at.Segments, Segment{Runs: [][]Review{{r}}})
		if r.Allowed() {
			return nil
		}
	}
	var segment Segment
	for _, run := range st.runs {
		var reviews []Review
		for _, q := range run {
			r := k.ask(q)
			reviews = append(reviews, r)
			if !r.Allowed() {
				messages = append(messages, r.text)
				break
			}
		}
		segment.Runs = append(segment.Runs, reviews)
	}
	if len(segment.Runs) > 0 {
		at.Segments = append(at.Segments, segment)
	}
	return sets.List(sets.New(messages...))
}

// unknownText stands for the text of a denial that the model does not know.
const unknownText = "\x00"

// denial returns the text of a 403: the error's text first, as checkAuthorization of the filter with the gate on has it.
func (k asker) denial(r Review) string {
	why := r.Answer.Reason
	switch {
	case k.plain || r.Answer.Err == "":
	case r.Answer.vague:
		return unknownText
	case why != "":
		why = r.Answer.Err + ": " + why
	default:
		why = r.Answer.Err
	}
	return forbidden(r.Spec, why)
}

// forbidden returns the text of a 403, as it is made by ForbiddenStatusError and forbiddenMessage of
// k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
func forbidden(spec authorizationv1.SubjectAccessReviewSpec, reason string) string {
	if reason != "" {
		reason = ": " + reason
	}
	a := spec.ResourceAttributes
	if a == nil {
		n := spec.NonResourceAttributes
		return "forbidden: " + scenarios.EscapeMessage(fmt.Sprintf("User %q cannot %s path %q", spec.User, n.Verb, n.Path)) + reason
	}
	resource, place := scenarios.FullResource(a.Resource, a.Subresource), "at the cluster scope"
	if a.Namespace != "" {
		place = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", spec.User, a.Verb, resource, a.Group, place)
	return statusForbidden(a.Group, a.Resource, a.Name, scenarios.EscapeMessage(text)+reason)
}

func statusForbidden(group, resource, name, text string) string {
	return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, name, errors.New(text)).Error()
}

// keyRuns returns the questions about extra, a run for each key.
func keyRuns[T any](extra map[string][]string, ask func(key, value string) T) (runs [][]T) {
	return seq.Map(slices.Sorted(maps.Keys(extra)), func(key string) []T {
		return seq.Map(extra[key], func(value string) T { return ask(key, value) })
	})
}

// Do predicts what the server does with a request of requestor, who is authenticated (RequestorOf, Authenticated),
// and remembers it. Nothing is impersonated if imp is nil.
func (s *Server) Do(requestor scenarios.User, imp *scenarios.Impersonate, r Request) Prediction {
	p := Prediction{Requestor: requestor, Counted: s.countsImpersonation(), Audit: auditOfNobody()}
	if headerBytes(imp, r.Headers) > maxHeaders {
		p.Outcome, p.Code = scenarios.HeadersTooLarge, 431
		return p
	}
	if r.Unread != "" {
		p.Outcome, p.Code, p.Messages = scenarios.ServerError, 500, []string{r.Unread}
		return p
	}
	requestedUser, isSent := wantedUser(imp, r.Headers)
	if isSent {
		p.Wanted = &requestedUser
	}
	if isSent && requestedUser.Name == "" {
		s.refuseWithoutUser(&p, requestedUser)
		return p
	}
	subject := requestor
	if isSent {
		if s.isGateOn() {
			s.impersonate(&p, requestedUser, r.Attributes)
		} else {
			s.impersonateGateOff(&p, requestedUser)
		}
		s.countAttempt(&p)
		if p.User == nil {
			p.Outcome, p.Code = scenarios.ImpersonationForbidden, 403
			p.Messages = slices.DeleteFunc(p.Messages, func(m string) bool { return m == unknownText })
			return p
		}
		subject = *p.User
	}
	s.authorizeRequest(&p, subject, r)
	return p
}

// auditOfNobody returns the audit event of a request that is not authorized, by anybody, yet.
func auditOfNobody() scenarios.AuditExpect {
	return scenarios.AuditExpect{ImpersonatedUser: new(false), Constraint: new(""), Decision: new("")}
}

// become predicts that the request is carried out as a user.
func (p *Prediction) become(u scenarios.User, mode Mode) {
	p.User, p.Mode, p.Messages = &u, mode, nil
	p.Audit.ImpersonatedUser = new(true)
	if mode != Legacy {
		p.Audit.Constraint = new("impersonate:" + string(mode))
	}
}

// countAttempt counts an attempt, under its mode if it succeeded (constrainedImpersonationHandler.ServeHTTP).
func (s *Server) countAttempt(p *Prediction) {
	if !p.Counted {
		return
	}
	p.Attempts = []scenarios.MetricDelta{{Mode: string(p.Mode), Decision: "denied", Count: 1}}
	if p.User != nil {
		p.Attempts[0].Decision = "allowed"
	}
}

// impersonateGateOff does what WithImpersonation does, the filter without the gate.
func (s *Server) impersonateGateOff(p *Prediction, requestedUser scenarios.User) {
	k := asker{Server: s, by: scenarios.ByRequestor, plain: true}
	at, id := Attempt{Mode: Legacy}, gateOffIdentity(p.Requestor)
	k.askStages(&at, id.stages(requestedUser))
	p.Trace, p.Segments, p.Messages = []Attempt{at}, at.Segments, at.Messages
	if at.Allowed {
		p.become(id.resulting(requestedUser), Legacy)
	}
}

// refuseWithoutUser answers headers that name no user: 500 before 1.35, 400 since (processImpersonationHeaders,
// buildImpersonationRequests).
func (s *Server) refuseWithoutUser(p *Prediction, u scenarios.User) {
	if s.binary < 35 {
		p.Outcome, p.Code = scenarios.ServerError, 500
		return // the text has the whole URL in it
	}
	p.Outcome, p.Code = scenarios.BadRequest, 400
	if s.isGateOn() {
		p.Messages = []string{
			fmt.Sprintf(
				"requested &user.DefaultInfo{Name:%#v, UID:%#v, Groups:%#v, Extra:%#v} without impersonating a user name",
				u.Name,
				u.UID,
				u.Groups,
				u.Extra,
			),
		}
		return
	}
	var after []string
	before := seq.Map(u.Groups, func(g string) string { return "{Group  " + g + "    }" })
	if u.UID != "" {
		after = append(after, "{UID  "+u.UID+"  authentication.k8s.io/v1  }")
	}
	runs := keyRuns(u.Extra, func(key, value string) string {
		return "{UserExtra  " + value + "  authentication.k8s.io/v1  " + key + "}"
	})
	for _, order := range orders(runs, func([]string) bool { return false }) {
		p.Messages = append(p.Messages,
			"requested ["+strings.Join(slices.Concat(before, order, after), " ")+"] without impersonating a user",
		)
	}
}

// authorizeRequest authorizes the request as whoever it has become (k8s.io/apiserver/pkg/endpoints/filters, withAuthorization).
func (s *Server) authorizeRequest(p *Prediction, subject scenarios.User, r Request) {
	k := asker{Server: s, by: scenarios.ByRequestor}
	if p.User != nil {
		k.by = scenarios.ByImpersonated
	}
	switch review := p.add(k.ask(question{"", subject, r.Attributes})); {
	case review.Allowed():
		p.Outcome, p.Audit.Decision = scenarios.Allowed, new("allow")
		s.store(p, k, subject, r)
	case review.Answer.Err != "":
		p.Outcome, p.Code = scenarios.ServerError, 500
	default:
		p.Outcome, p.Code, p.Audit.Decision = scenarios.RequestForbidden, 403, new("forbid")
		p.Messages = []string{forbidden(review.Spec, review.Answer.Reason)}
	}
}
