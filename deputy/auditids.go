package deputy

import (
	"errors"
	"fmt"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// sentRequests are the audit IDs of the requests of a run. Each recorded request has to be the one that was to be sent,
// and no two may have the same audit ID. Anything else is a fault of ours.
type sentRequests map[string]bool

// checkPreflight asserts that each request of the pre-flight was sent as it should have been.
func (s sentRequests) checkPreflight(g *group, e *preflightEvidence) error {
	for key, q := range g.fixture.questionsByRules(g.questions) {
		if err := s.check(q.who, g.fixture.rulesReview(q), e.Rules[key]); err != nil {
			return fmt.Errorf("the rules of %s: %w", key, err)
		}
	}
	for i, q := range g.questions {
		evidence := e.Questions[i]
		if err := errors.Join(s.check(q.who, q.review(), evidence.Review), s.check(q.who, q.request(), evidence.Request)); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	for n, visit := range e.Visits {
		p, person := pages()[n/len(pageVisits)], g.fixture.visitor(n/len(pageVisits))
		_, requests := p.reviewsOf(person, g.fixture.namespaces[0])
		for i, o := range visit.Reviews {
			if err := s.check(person, requests[i], o); err != nil {
				return fmt.Errorf("%s, %s: %w", p.Page, pageVisits[n%len(pageVisits)], err)
			}
		}
	}
	return nil
}

// checkRows asserts that no two rows of the deputy's audit log have the same audit ID.
func (s sentRequests) checkRows(e *auditLogsEvidence) error {
	for _, route := range e.Routes {
		for _, row := range route.Rows {
			if err := s.add(row.AuditID); err != nil {
				return fmt.Errorf("the row of %s, %s: %w", row.Actor, row.URI, err)
			}
		}
	}
	return nil
}

// check asserts that a request was recorded as it should have been sent.
func (s sentRequests) check(person *Identity, r *scenarios.Request, o *verdicts.Observation) error {
	if o == nil {
		return errors.New("there is no evidence of it")
	}
	if why := verdicts.CompareSentRequest(person.impersonate(r), scenarios.Requestor{User: person.Name}, o); why != "" {
		return errors.New(why)
	}
	if o.Answered.Before(o.Sent) {
		return errors.New("it was answered before it was sent")
	}
	return s.add(o.Response.AuditID)
}

// add returns an error if another request had the same audit ID.
func (s sentRequests) add(auditID string) error {
	if s[auditID] {
		return fmt.Errorf("its audit ID %s is also one of another request", auditID)
	}
	s[auditID] = true
	return nil
}
