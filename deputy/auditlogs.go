package deputy

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
)

// usersNamespace is where the users may list pods.
const usersNamespace = "users"

// users are people who use the deputy at once.
func users(n int) (out []person) {
	for i := range n {
		out = append(out, person{name: fmt.Sprintf("client-%d@corp", i), groups: []string{tierOf(i)}, reachable: true})
	}
	return out
}

// tierOf is the group of somebody's tier.
func tierOf(i int) string { return reference.TierPrefix + reference.Tiers()[i%5] }

// userGrants let every second one list and watch pods.
func userGrants(people []person) (out []scenarios.Grant) {
	for i := 0; i < len(people); i += 2 {
		out = append(out, scenarios.Grant{Subject: scenarios.Subject{User: people[i].name}, Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}, Namespace: usersNamespace})
	}
	return out
}

// sessionHeader stands for a session's cookie: it says who is in front of the
// browser, and the identity provider's group of that person.
const sessionHeader = "X-Session"

// front is a running deputy with its audit log.
type front struct {
	*target.Loopback
	client *http.Client

	mu   sync.Mutex
	rows map[string]reference.Row
}

// newFront starts a deputy for a users in front of to.
func newFront(ctx context.Context, to *url.URL, rt http.RoundTripper, token string, people []person) (*front, error) {
	f := &front{rows: map[string]reference.Row{}}
	tiers, sessions := map[string]string{}, map[string]reference.User{}
	for i, p := range people {
		group := "idp-" + reference.Tiers()[i%5]
		tiers[group] = reference.Tiers()[i%5]
		sessions[p.name] = reference.User{Subject: p.name, Groups: []string{group}}
	}
	handler, err := reference.New(reference.Options{
		Target: to, Transport: rt, Token: token, Mapping: reference.Mapping{Mode: reference.Tier, GroupTiers: tiers},
		Session: func(r *http.Request) (reference.User, bool) {
			u, ok := sessions[r.Header.Get(sessionHeader)]
			return u, ok
		},
		Audit: func(row reference.Row) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.rows[row.AuditID] = row
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	if f.Loopback, err = target.ServeLoopback(ctx, handler, nil); err != nil {
		return nil, err
	}
	f.client, err = rest.HTTPClientFor(&rest.Config{Host: f.URL, TLSClientConfig: rest.TLSClientConfig{CAData: f.CA}})
	return f, err
}

// auditLogs lets everybody send requests at once, through a deputy and through a deputy and a tunnel, and compares the
// deputies' audit logs with the API server's row for row.
func auditLogs(ctx context.Context, p *plane, part *Part, people []person, requests int) (err error) {
	began := now()
	agent, stop, err := p.agent(ctx, p.url)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	direct, err := newFront(ctx, p.url, p.transport, p.token, people)
	if err != nil {
		return err
	}
	defer func() { _ = direct.Close() }()
	tunnelled, err := newFront(ctx, agent.url, agent.transport, "", people)
	if err != nil {
		return err
	}
	defer func() { _ = tunnelled.Close() }()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, f := range []*front{direct, tunnelled} {
		for i, who := range people {
			group.Go(func() error { return f.use(groupCtx, part, who, people[(i+1)%len(people)], requests, i%2 == 0) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return compare(ctx, p, part, began, direct, tunnelled)
}

var paths = []string{"/api/v1/namespaces/" + usersNamespace + "/pods", "/version"}

// use sends the requests of one person, who tries to be another one now and then.
func (f *front) use(ctx context.Context, part *Part, who, other person, requests int, mayList bool) error {
	for n := range requests {
		path := paths[n%len(paths)]
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+path+fmt.Sprintf("?n=%d", n), nil)
		if err != nil {
			return err
		}
		req.Header.Set(sessionHeader, who.name)
		if n%3 == 2 {
			req.Header.Set("Impersonate-User", other.name)
			req.Header.Set("Impersonate-Group", "system:masters")
			req.Header.Set("Authorization", "Bearer somebody-else")
			req.Header.Set("Audit-Id", "chosen-by-the-client")
		}
		resp, err := f.client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		want := http.StatusOK
		if path == paths[0] && !mayList {
			want = http.StatusForbidden
		}
		if path == paths[0] && resp.StatusCode != want {
			f.mu.Lock()
			part.fail("%s %s: code %d, want %d", who.name, path, resp.StatusCode, want)
			f.mu.Unlock()
		}
	}
	return nil
}

// now is the time as audit events state it.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }

// compare holds the deputies' rows against the API server's events of requests that it received since began. An event
// is written after its answer was sent: those of earlier requests may still come in.
func compare(ctx context.Context, p *plane, part *Part, began time.Time, fronts ...*front) error {
	rows := map[string]reference.Row{}
	for _, f := range fronts {
		maps.Copy(rows, f.rows)
	}
	for id, row := range rows {
		e, err := p.event(ctx, id)
		part.Checks++
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			part.fail("lost: the deputy's row of %s, %s %s, has no event: %v", row.Actor, row.Method, row.URI, err)
		case e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != row.Actor:
			part.fail("misattributed: %s %s of %s is an event as %+v", row.Method, row.URI, row.Actor, e.ImpersonatedUser)
		case e.RequestURI != row.URI || e.User.Username != proxyName:
			part.fail("the row of %s is about %s, the event about %s by %s", row.Actor, row.URI, e.RequestURI, e.User.Username)
		default:
			part.Outcomes["correlated"]++
		}
	}
	rest, err := p.EventsBy(proxyName)
	if err != nil {
		return err
	}
	for _, e := range rest {
		if !e.RequestReceivedTimestamp.Time.Before(began) {
			part.fail("the event %s, %s as %+v, has no row of the deputy", e.AuditID, e.RequestURI, e.ImpersonatedUser)
		}
	}
	return nil
}
