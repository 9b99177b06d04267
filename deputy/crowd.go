package deputy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Namespace is where the users may list pods, on a control plane of ours.
const Namespace = "users"

func users(n int) (out []*Identity) {
	for i := range n {
		out = append(out, asserted(fmt.Sprintf("client-%d@corp", i), tierOf(i)))
	}
	return out
}

func tierOf(i int) string { return reference.TierPrefix + reference.Tiers()[i%5] }

// userGrants let every one of so many read pods, and be redirected by the API server.
func userGrants(people []*Identity, step int) (out []scenarios.Grant) {
	for i := 0; i < len(people); i += step {
		out = append(out, scenarios.Grant{Subject: scenarios.Subject{User: people[i].Name}, Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}, Namespace: Namespace},
			scenarios.Grant{Subject: scenarios.Subject{User: people[i].Name}, Verbs: []string{"get"}, NonResourceURLs: []string{"/debug/pprof"}})
	}
	return out
}

// everyOther is the step of the grants where the reference deputy is used: half of the people are refused.
const everyOther = 2

// sessionHeader stands for a session's cookie: it says who is in front of the browser.
const sessionHeader = "X-Session"

func inSession(people []*Identity) []*Identity {
	return seq.Map(people, func(p *Identity) *Identity {
		return &Identity{Name: p.Name, Groups: p.Groups, headers: []header{{sessionHeader, p.Name}}}
	})
}

// front is a running deputy with its audit log.
type front struct {
	*endpoint

	mu   sync.Mutex
	rows []reference.Row
}

func (p *plane) newFront(ctx context.Context, to *url.URL, rt http.RoundTripper, token string, people []*Identity) (*front, error) {
	f := &front{}
	tiers, sessions := map[string]string{}, map[string]reference.User{}
	for _, who := range people {
		group := "idp-" + who.Groups[0]
		tiers[group] = strings.TrimPrefix(who.Groups[0], reference.TierPrefix)
		sessions[who.Name] = reference.User{Subject: who.Name, Groups: []string{group}}
	}
	handler, err := reference.New(reference.Options{
		Target: to, Transport: rt, Token: token, GroupTiers: tiers,
		Session: func(r *http.Request) (reference.User, bool) {
			u, ok := sessions[r.Header.Get(sessionHeader)]
			return u, ok
		},
		Audit: func(row reference.Row) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.rows = append(f.rows, row)
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	f.endpoint, err = p.serve(ctx, handler, inSession(people))
	return f, err
}

// crowdEvidence is what was seen while everybody sent requests.
type crowdEvidence struct {
	// Ways are the ways to the API server: one of a proxy of somebody's, two of the reference deputy.
	Ways []wayEvidence `json:"ways"`
	// Others are the events of the proxy identity in that time that no row of the deputy is about.
	Others []auditv1.Event `json:"others,omitempty"`
}

// wayEvidence is what became of the requests on one way, and the log of the deputy on it.
type wayEvidence struct {
	Attacks *attacksEvidence `json:"attacks"`
	Rows    []reference.Row  `json:"rows,omitempty"`
}

func (ep *endpoint) crowd(ctx context.Context, requests int) (*attacksEvidence, error) {
	everybody := crowd(ep.people, requests)
	return ep.attack(ctx, everybody, len(everybody))
}

// deputies are used by everybody: one in front of the API server, and one in front of a tunnel.
func (p *plane) deputies(ctx context.Context, agent *endpoint, requests int) (*crowdEvidence, error) {
	direct, err := p.newFront(ctx, p.url, p.transport, p.token, agent.people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = direct.close() }()
	tunnelled, err := p.newFront(ctx, agent.url, agent.client(&Identity{}).Transport, "", agent.people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tunnelled.close() }()
	return p.logs(ctx, now(), requests, direct, tunnelled)
}

// logs uses deputies, and reads their logs and the API server's, in which events from before began may still come in.
func (p *plane) logs(ctx context.Context, began time.Time, requests int, fronts ...*front) (*crowdEvidence, error) {
	e, ids := &crowdEvidence{}, sets.New[string]()
	for _, f := range fronts {
		seen, err := f.crowd(ctx, requests)
		if err != nil {
			return nil, err
		}
		e.Ways = append(e.Ways, wayEvidence{seen, f.rows})
		ids.Insert(seq.Map(f.rows, func(row reference.Row) string { return row.AuditID })...)
	}
	others, err := p.EventsBy(proxyName)
	e.Others = seq.Filter(others, func(o auditv1.Event) bool {
		return !o.RequestReceivedTimestamp.Time.Before(began) && !ids.Has(string(o.AuditID))
	})
	return e, err
}

// now is the time as audit events state it.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }

// judge holds everybody's requests to who arrived, and the reference deputy's audit log to the API server's row for row.
func (e *crowdEvidence) judge(part *Part, s *suite) error {
	ways, people := 1, s.people
	if s.reference {
		ways, people = 2, inSession(s.people)
	}
	if len(e.Ways) != ways {
		return fmt.Errorf("there is evidence of %d ways to the API server, not of %d", len(e.Ways), ways)
	}
	for _, way := range e.Ways {
		if way.Attacks == nil {
			return errors.New("there is no evidence of requests")
		}
		if err := way.Attacks.judge(part, crowd(people, s.requests), people, s.account, s.reference); err != nil {
			return err
		}
		if !s.reference {
			continue
		}
		if err := way.judgeRows(part); err != nil {
			return err
		}
		way.judgeAnswers(part, s)
	}
	for _, o := range e.Others {
		part.fail("the event %s, %s as %+v, has no row of the deputy", o.AuditID, o.RequestURI, o.ImpersonatedUser)
	}
	return nil
}

// judgeRows compares a deputy's audit log with the API server's.
func (w *wayEvidence) judgeRows(part *Part) error {
	events := map[string]*auditv1.Event{}
	for _, one := range w.Attacks.Attacks {
		for _, e := range one.distinct() {
			events[string(e.AuditID)] = e
		}
	}
	for _, row := range w.Rows {
		if err := part.once(row.AuditID); err != nil {
			return fmt.Errorf("the row of %s, %s: %w", row.Actor, row.URI, err)
		}
		e := events[row.AuditID]
		delete(events, row.AuditID)
		part.Checks++
		switch {
		case e == nil:
			part.fail("lost: the deputy's row of %s, %s %s, has no event", row.Actor, row.Method, row.URI)
		case e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != row.Actor:
			part.fail("misattributed: %s %s of %s is an event as %+v", row.Method, row.URI, row.Actor, e.ImpersonatedUser)
		case e.RequestURI != row.URI || e.User.Username != proxyName:
			part.fail("the row of %s is about %s, the event about %s by %s", row.Actor, row.URI, e.RequestURI, e.User.Username)
		default:
			part.Outcomes["correlated"]++
		}
	}
	for _, e := range events {
		part.fail("the event %s, %s as %+v, has no row of the deputy", e.AuditID, e.RequestURI, e.ImpersonatedUser)
	}
	return nil
}

// judgeAnswers holds what clients were told to what they are granted: everybody has two entries in the crowd.
func (w *wayEvidence) judgeAnswers(part *Part, s *suite) {
	grants := s.grants()
	list := &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: Namespace}
	for n, one := range w.Attacks.Attacks {
		want := http.StatusForbidden
		if s.people[n/2].granted(grants, list) {
			want = http.StatusOK
		}
		for i, got := range one.Answers {
			if got.Code != want {
				part.fail("%s: code %d, want %d %s", markerOf(w.Attacks.Run, n, i+1), got.Code, want, got.Problem)
			}
		}
	}
}
