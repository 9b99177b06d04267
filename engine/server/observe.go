package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Observe sends one request, by calling send, which puts the answer into o, and adds everything else that the target saw
// of it. No other request of a scenario is under way meanwhile.
func (s *Server) Observe(ctx context.Context, o *verdicts.Observation, send func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	if s.blind() {
		return send()
	}
	mark := s.recorder.Mark()
	s.aggregated.take()
	err := send()
	switch {
	case err == nil:
		if err := s.observeAudit(ctx, o, mark); err != nil {
			return err
		}
	case connectionEnded(err) && s.answers(ctx):
		o.Response.Broken = err.Error()
	default:
		// What was counted for it is not the next request's.
		return errors.Join(err, s.recount(ctx), s.Err())
	}
	o.Backend, o.Admission = s.aggregated.take()
	if o.Reviews == nil {
		o.Reviews = s.toReviews(s.recorder.Since(mark))
	}
	o.Metrics, err = s.increases(ctx)
	if o.Audit != nil {
		o.AuditAgain = s.events.repeated() // which comes at once, or not at all
	}
	return errors.Join(err, s.Err())
}

// observeAudit adds the audit events of a request that was answered, and where nothing but a further request shows that
// none will come, the reviews since the mark.
func (s *Server) observeAudit(ctx context.Context, o *verdicts.Observation, mark uint64) (err error) {
	id := o.Response.AuditID
	switch {
	case o.Response.Code == http.StatusRequestHeaderFieldsTooLarge, o.Request.IsUnreadable():
		return nil // the HTTP server, or the first of the filters, refused it before it became one that is audited
	case id == "":
		return errors.New("the answer has no Audit-Id header")
	case o.Response.Held != "":
		return nil // its events are those of a later end
	case unaudited(o):
		o.Reviews = s.toReviews(s.recorder.Since(mark)) // before another request asks
		if !s.answers(ctx) {
			return errors.Join(errors.New("nothing says that no audit event will come"), s.Err())
		}
		o.Audit, _ = s.events.take(id)
		return nil
	}
	o.Audit, err = s.events.Await(ctx, id)
	switch {
	case err == nil && o.Request.IsLongRunning():
		o.AuditStarted = s.events.beginning(id)
	case err == nil:
	case errors.Is(err, errNoEvent) && s.answers(ctx):
		o.NoAudit = err.Error()
	default:
		return errors.Join(err, s.Err())
	}
	return nil
}

// connectionEnded says that the server ended the connection or the stream without an answer, as when a handler panics.
func connectionEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		strings.Contains(err.Error(), "stream error: ")
}

// answers says whether the API server, at this moment, answers a request and writes the audit event of it. What it
// owes after that it has not just been too slow, or too dead, to do.
func (s *Server) answers(ctx context.Context) bool {
	client, err := s.UserClient(scenarios.Requestor{User: witnessUser}, nil, func(*http.Request) {})
	if err != nil {
		return false
	}
	answer, err := s.ask(ctx, client, "/version", nil)
	if err != nil {
		return false
	}
	_, err = s.events.Await(ctx, answer.auditID)
	return err == nil && s.Err() == nil
}

// Audit waits for the audit event of a request that was answered.
func (s *Server) Audit(ctx context.Context, auditID string) (json.RawMessage, error) {
	if auditID == "" {
		return nil, errors.New("the answer has no Audit-Id header")
	}
	return s.events.Await(ctx, auditID)
}

// AuditEarlier adds the audit events of a request after which others were answered: where there is to be none, none has
// come.
func (s *Server) AuditEarlier(ctx context.Context, o *verdicts.Observation) (err error) {
	switch {
	case s.blind():
	case unaudited(o):
		o.Audit, _ = s.events.take(o.Response.AuditID)
	default:
		o.Audit, err = s.Audit(ctx, o.Response.AuditID)
		if err == nil && o.Request.IsLongRunning() {
			o.AuditStarted = s.events.beginning(o.Response.AuditID)
		}
	}
	return err
}

// unaudited says that the policy wants no event of a request.
func unaudited(o *verdicts.Observation) bool {
	return o.Request.Credential != nil && scenarios.AuditLevel(o.Request.Credential.Groups) == scenarios.AuditNone
}

// Event is the audit event of a request that was sent beside the one that is observed; none where the target shows none.
func (s *Server) Event(ctx context.Context, auditID string) (json.RawMessage, error) {
	if s.blind() {
		return nil, nil
	}
	return s.events.Await(ctx, auditID)
}

// Reviews returns the access reviews of these users, or of everybody, that have arrived since a mark, in order.
func (s *Server) Reviews(mark uint64, users ...string) []verdicts.Review {
	return s.toReviews(s.recorder.Since(mark, users...))
}

func (s *Server) toReviews(records []recorder.Record) []verdicts.Review {
	reviews := make([]verdicts.Review, 0, len(records))
	for _, r := range records {
		if s.others(r.Spec) {
			continue
		}
		v := verdicts.Review{Point: string(r.Point), At: r.At, APIVersion: recorder.APIVersion, Spec: r.Spec}
		if r.Answer != nil {
			v.Decision = s.between.decision(*r.Answer)
		}
		reviews = append(reviews, v)
	}
	return s.between.conditionErrors(reviews)
}
