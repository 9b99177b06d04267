package deputy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// preflight asks every question through the proxy, as a review and as the request itself.
func (ep *endpoint) preflight(ctx context.Context, p *Proxy, s *suite) (*preflightEvidence, error) {
	e := &preflightEvidence{Run: newRun(), Pairs: make([]pairEvidence, len(s.pairs)), Rules: map[string]*verdicts.Observation{}}
	people, clients := cast(p.People), map[string]*http.Client{}
	for _, id := range p.People {
		clients[id.Name] = p.client(id)
		defer clients[id.Name].CloseIdleConnections()
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	ask := func(who, marker string, r *scenarios.Request) (*verdicts.Observation, error) {
		return ep.ask(groupCtx, clients[who], people[who], r, marker)
	}
	for i, q := range s.pairs {
		group.Go(func() (err error) {
			one := &e.Pairs[i]
			if one.Said, err = ask(q.who.name, markerOf(e.Run, i, "said"), q.review()); err == nil {
				one.Did, err = ask(q.who.name, markerOf(e.Run, i, "did"), q.request())
			}
			if err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
			return nil
		})
	}
	var mu sync.Mutex
	for key, q := range s.fixture.ruled(s.pairs) {
		group.Go(func() error {
			o, err := ask(q.who.name, e.Run+"-"+key, s.fixture.rules(q))
			mu.Lock()
			defer mu.Unlock()
			e.Rules[key] = o
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	events, err := ep.trail.since(ctx, e.Run, `"auditID"`)
	if err != nil {
		return nil, err
	}
	at := map[string]json.RawMessage{}
	for _, raw := range events {
		if ev := decode(raw); ev != nil {
			at[string(ev.AuditID)], at[ev.UserAgent] = raw, raw
		}
	}
	for i := range e.Pairs {
		did := e.Pairs[i].Did
		if did.Audit = at[did.Response.AuditID]; did.Audit == nil {
			did.Audit = at[markerOf(e.Run, i, "did")]
		}
	}
	return e, nil
}

// ask sends a request of a person through the proxy. The marker is its user agent and audit ID, if the proxy lets it be.
func (ep *endpoint) ask(ctx context.Context, client *http.Client, who *Identity, r *scenarios.Request, marker string) (*verdicts.Observation, error) {
	req, err := replay.NewRequest(ctx, ep.url.String(), r)
	if err != nil {
		return nil, err
	}
	o := &verdicts.Observation{}
	replay.Record(&o.Request, req)
	o.Request.URL = strings.TrimPrefix(o.Request.URL, ep.url.Path)
	o.Request.Requestor, o.Request.Credential = who.Name, &scenarios.User{Name: who.Name}
	who.set(req.Header)
	req.Header.Set("User-Agent", marker)
	req.Header.Set("Audit-Id", marker)
	o.Sent = time.Now()
	o.Response, err = replay.RoundTrip(client, req, r.Verb == "watch")
	o.Answered = time.Now()
	return o, err
}

// judgeProxy holds what was shown to what was done, and both, on a control plane of ours, to the grants.
func (e *preflightEvidence) judgeProxy(part *Part, s *suite, p *Proxy) error {
	rules := s.fixture.ruled(s.pairs)
	if len(e.Pairs) != len(s.pairs) || len(e.Rules) != len(rules) {
		return fmt.Errorf("there is evidence of %d questions and %d rules reviews, the command line asks for %d and %d", len(e.Pairs), len(e.Rules), len(s.pairs), len(rules))
	}
	by := func(q pair) scenarios.Requestor { return scenarios.Requestor{User: q.who.name} }
	for key, q := range rules {
		if err := part.sentBy(by(q), s.fixture.rules(q), e.Rules[key]); err != nil {
			return fmt.Errorf("the rules of %s: %w", key, err)
		}
	}
	for i, q := range s.pairs {
		one := e.Pairs[i]
		if err := errors.Join(part.sentBy(by(q), q.review(), one.Said), part.sentBy(by(q), q.request(), one.Did)); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		part.Checks++
		said, status, err := reviewed(one.Said)
		did, err2 := e.done(part, q, one.Did, markerOf(e.Run, i, "did"))
		listed, err3 := listed(q, e.Rules[s.fixture.key(q)])
		if err := errors.Join(err, err2, err3); err != nil {
			part.fail("%s: %v", q, err)
			continue
		}
		part.Outcomes[string(did)]++
		if p.Kubeconfig != "" { // with grants and authorizers that are not known
			if said != did {
				part.fail("%s: the pre-flight says %q, the request is %q", q, said, did)
			}
			continue
		}
		for _, why := range judge(q, s.fixture.granted(q), said, did, listed, status) {
			part.fail("%s: %s", q, why)
		}
	}
	return nil
}

// done is what became of a request, by its audit event.
func (e *preflightEvidence) done(part *Part, q pair, o *verdicts.Observation, marker string) (answer, error) {
	ev := decode(o.Audit)
	switch {
	case ev == nil:
		return "", fmt.Errorf("the request was answered %d and has no audit event: it did not arrive", o.Response.Code)
	case string(ev.AuditID) == o.Response.AuditID:
		part.By["audit ID"]++
	case ev.UserAgent == marker:
		part.By["user agent"]++
	default:
		return "", fmt.Errorf("the event %s is not that of this request", ev.AuditID)
	}
	who := ev.User
	if ev.ImpersonatedUser != nil {
		who = *ev.ImpersonatedUser
	}
	switch {
	case ev.ImpersonatedUser == nil && decision(*ev) == "":
		return unreachable, nil
	case who.Username != q.who.name:
		return "", fmt.Errorf("it was made as %q", who.Username)
	case decision(*ev) == "allow":
		return yes, nil
	case decision(*ev) == "forbid":
		return no, nil
	}
	return "", fmt.Errorf("its audit event has the decision %q", decision(*ev))
}
