package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Do predicts what the server does with a request of requestor, who is authenticated (RequestorOf, Authenticated),
// and remembers it. Nothing is impersonated if imp is nil.
func (s *Server) Do(requestor scenarios.User, imp *scenarios.Impersonate, r Request) Prediction {
	p := Prediction{Requestor: requestor, Counted: s.countsImpersonation()}
	if headerBytes(imp, r.Headers) > maxHeaders {
		p.Outcome, p.Code = scenarios.HeadersTooLarge, 431
		return p
	}
	wanted, asked := wantedUser(imp, r.Headers)
	if asked {
		p.Wanted = &wanted
	}
	if asked && wanted.Name == "" {
		s.withoutUser(&p, wanted)
		return p
	}
	subject := requestor
	if asked {
		if s.gate {
			s.impersonate(&p, wanted, r.Attributes)
		} else {
			s.impersonateGateOff(&p, wanted)
		}
		s.attempted(&p)
		if p.User == nil {
			p.Outcome, p.Code = scenarios.ImpersonationForbidden, 403
			p.Messages = slices.DeleteFunc(p.Messages, func(m string) bool { return m == unknownText })
			return p
		}
		subject = *p.User
	}
	s.final(&p, subject, r)
	return p
}

// become notes that impersonation succeeded.
func (p *Prediction) become(u scenarios.User, mode Mode) {
	p.User, p.Mode, p.Messages = &u, mode, nil
	p.Audit.ImpersonatedUser = true
	if mode != Legacy {
		p.Audit.Constraint = "impersonate:" + string(mode)
	}
}

// attempted counts one attempt: under its mode if it succeeded, under none if not (modeFromConstraint,
// constrainedImpersonationHandler.ServeHTTP).
func (s *Server) attempted(p *Prediction) {
	if !p.Counted {
		return
	}
	p.Attempts = []scenarios.MetricDelta{{Mode: string(p.Mode), Decision: "denied", Count: 1}}
	if p.User != nil {
		p.Attempts[0].Decision = "allowed"
	}
}

// impersonateGateOff is WithImpersonation, the filter without the gate.
func (s *Server) impersonateGateOff(p *Prediction, wanted scenarios.User) {
	k := asker{Server: s, by: scenarios.ByRequestor, plain: true}
	at, id := Attempt{Mode: Legacy}, gateOffIdentity(p.Requestor)
	k.stages(&at, id.stages(wanted))
	p.Trace, p.Segments, p.Messages = []Attempt{at}, at.Segments, at.Messages
	if at.Allowed {
		p.become(id.resulting(wanted), Legacy)
	}
}

// withoutUser is the answer to headers that name no user: 500 before 1.35, 400 since (processImpersonationHeaders,
// buildImpersonationRequests).
func (s *Server) withoutUser(p *Prediction, u scenarios.User) {
	if s.binary < 35 {
		p.Outcome, p.Code = scenarios.ServerError, 500
		return // the text has the whole URL in it
	}
	p.Outcome, p.Code = scenarios.BadRequest, 400
	if s.gate {
		p.Messages = []string{fmt.Sprintf("requested &user.DefaultInfo{Name:%#v, UID:%#v, Groups:%#v, Extra:%#v} without impersonating a user name", u.Name, u.UID, u.Groups, u.Extra)}
		return
	}
	var before, after []string
	for _, g := range u.Groups {
		before = append(before, "{Group  "+g+"    }")
	}
	if u.UID != "" {
		after = append(after, "{UID  "+u.UID+"  authentication.k8s.io/v1  }")
	}
	runs := keyRuns(u.Extra, func(key, value string) question {
		return question{Attributes: Attributes{Subresource: key, Name: value}}
	})
	for order := range orders(len(runs)) {
		parts := slices.Clone(before)
		for _, i := range order {
			for _, q := range runs[i] {
				parts = append(parts, "{UserExtra  "+q.Name+"  authentication.k8s.io/v1  "+q.Subresource+"}")
			}
		}
		parts = append(parts, after...)
		p.Messages = append(p.Messages, "requested ["+strings.Join(parts, " ")+"] without impersonating a user")
	}
}

// final authorizes the request itself, as whoever it has become (withAuthorization of
// k8s.io/apiserver/pkg/endpoints/filters/authorization.go).
func (s *Server) final(p *Prediction, subject scenarios.User, r Request) {
	k := asker{Server: s, by: scenarios.ByRequestor}
	if p.User != nil {
		k.by = scenarios.ByImpersonated
	}
	switch review := p.add(k.ask(question{"", subject, r.Attributes})); {
	case review.Allowed():
		p.Outcome, p.Audit.Decision = scenarios.Allowed, "allow"
		s.store(p, k, subject, r)
	case review.Answer.Err != "":
		p.Outcome, p.Code = scenarios.ServerError, 500
	default:
		p.Outcome, p.Code, p.Audit.Decision = scenarios.RequestForbidden, 403, "forbid"
		p.Messages = []string{forbidden(review.Spec, review.Answer.Reason)}
	}
}
