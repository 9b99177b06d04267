package deputy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Namespace is where the users may list pods, on a control plane of ours.
const Namespace = "users"

// users are people who use the deputy at once.
func users(n int) (out []person) {
	for i := range n {
		out = append(out, person{name: fmt.Sprintf("client-%d@corp", i), groups: []string{tierOf(i)}, reachable: true})
	}
	return out
}

// tierOf is the group of somebody's tier.
func tierOf(i int) string { return reference.TierPrefix + reference.Tiers()[i%5] }

// userGrants let every one of so many list and watch pods.
func userGrants(people []person, step int) (out []scenarios.Grant) {
	for i := 0; i < len(people); i += step {
		out = append(out, scenarios.Grant{Subject: scenarios.Subject{User: people[i].name}, Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}, Namespace: Namespace})
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

// logsEvidence is what was seen while everybody sent requests.
type logsEvidence struct {
	Fronts []frontEvidence `json:"fronts"`
	// Events are those of the rows, by audit ID, Others the rest that the proxy identity has made since.
	Events map[string]json.RawMessage `json:"events"`
	Others []auditv1.Event            `json:"others"`
}

// frontEvidence is what clients were told, by person and number, and the log of the deputy.
type frontEvidence struct {
	Answers [][]told        `json:"answers"`
	Rows    []reference.Row `json:"rows"`
}

// told is a request of a client, and the code of its answer.
type told struct {
	Request verdicts.SentRequest `json:"request"`
	Code    int                  `json:"code"`
}

// auditLogs lets everybody send requests at once, through a deputy and through a deputy and a tunnel.
func (p *plane) auditLogs(ctx context.Context, people []person, requests int) (*logsEvidence, error) {
	began := now()
	agent, stop, err := p.agent(ctx, p.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	direct, err := newFront(ctx, p.url, p.transport, p.token, people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = direct.Close() }()
	tunnelled, err := newFront(ctx, agent.url, agent.transport, "", people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tunnelled.Close() }()
	return p.logs(ctx, began, people, requests, direct, tunnelled)
}

// logs uses deputies, and reads their logs and the API server's. An event is written after its answer was sent: those
// of requests before began may still come in.
func (p *plane) logs(ctx context.Context, began time.Time, people []person, requests int, fronts ...*front) (*logsEvidence, error) {
	e := &logsEvidence{Fronts: make([]frontEvidence, len(fronts)), Events: map[string]json.RawMessage{}}
	group, groupCtx := errgroup.WithContext(ctx)
	for n, f := range fronts {
		e.Fronts[n].Answers = make([][]told, len(people))
		for i := range people {
			group.Go(func() (err error) {
				e.Fronts[n].Answers[i], err = f.use(groupCtx, people, i, requests)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for n, f := range fronts {
		for _, id := range slices.Sorted(maps.Keys(f.rows)) {
			e.Fronts[n].Rows = append(e.Fronts[n].Rows, f.rows[id])
			raw, err := p.Audit(ctx, id)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err == nil { // one that is lost is told of when it is judged
				e.Events[id] = raw
			}
		}
	}
	others, err := p.EventsBy(proxyName)
	for _, o := range others {
		if !o.RequestReceivedTimestamp.Time.Before(began) {
			e.Others = append(e.Others, o)
		}
	}
	return e, err
}

var paths = []string{"/api/v1/namespaces/" + Namespace + "/pods", "/version"}

// clientRequest is the request of a person with a number: it tries to be another person now and then.
func clientRequest(people []person, i, n int) (uri string, headers map[string][]string) {
	headers = map[string][]string{sessionHeader: {people[i].name}}
	if n%3 == 2 {
		headers["Impersonate-User"] = []string{people[(i+1)%len(people)].name}
		headers["Impersonate-Group"] = []string{"system:masters"}
	}
	return fmt.Sprintf("%s?n=%d", paths[n%len(paths)], n), headers
}

// use sends the requests of one person.
func (f *front) use(ctx context.Context, people []person, i, requests int) (out []told, err error) {
	for n := range requests {
		uri, headers := clientRequest(people, i, n)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+uri, nil)
		if err != nil {
			return nil, err
		}
		if maps.Copy(req.Header, headers); len(headers) > 1 {
			req.Header.Set("Authorization", "Bearer somebody-else")
			req.Header.Set("Audit-Id", "chosen-by-the-client")
		}
		var one told
		client := &http.Client{Transport: target.Tapped(f.client.Transport, func(sent *http.Request) { replay.Record(&one.Request, sent) })}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		one.Code = resp.StatusCode
		out = append(out, one)
	}
	return out, nil
}

// now is the time as audit events state it.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }

// judge compares the deputies' audit logs with what clients were told, and with the API server's row for row.
func (e *logsEvidence) judge(part *Part, people []person, requests int) error {
	if len(e.Fronts) != 2 {
		return fmt.Errorf("there is evidence of %d deputies, not of 2", len(e.Fronts))
	}
	events := maps.Clone(e.Events)
	for _, f := range e.Fronts {
		if err := f.judge(part, people, requests); err != nil {
			return err
		}
		for _, row := range f.Rows {
			raw, ok := events[row.AuditID]
			delete(events, row.AuditID)
			e := verdicts.AuditOf(&verdicts.Observation{Audit: raw})
			part.Checks++
			switch {
			case !ok || e == nil || string(e.AuditID) != row.AuditID:
				part.fail("lost: the deputy's row of %s, %s %s, has no event", row.Actor, row.Method, row.URI)
			case e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != row.Actor:
				part.fail("misattributed: %s %s of %s is an event as %+v", row.Method, row.URI, row.Actor, e.ImpersonatedUser)
			case e.RequestURI != row.URI || e.User.Username != proxyName:
				part.fail("the row of %s is about %s, the event about %s by %s", row.Actor, row.URI, e.RequestURI, e.User.Username)
			default:
				part.Outcomes["correlated"]++
			}
		}
	}
	for id := range events {
		return fmt.Errorf("there is the event %s of no row", id)
	}
	for _, o := range e.Others {
		part.fail("the event %s, %s as %+v, has no row of the deputy", o.AuditID, o.RequestURI, o.ImpersonatedUser)
	}
	return nil
}

// judge holds one deputy's log to its clients: each request has one row.
func (f *frontEvidence) judge(part *Part, people []person, requests int) error {
	rows := map[string]int{}
	for _, r := range f.Rows {
		if err := part.once(r.AuditID); err != nil {
			return fmt.Errorf("the row of %s, %s: %w", r.Actor, r.URI, err)
		}
		rows[r.Actor+" "+r.URI]++
	}
	if len(f.Answers) != len(people) {
		return fmt.Errorf("there is evidence of %d people, the command line asks for %d", len(f.Answers), len(people))
	}
	for i, who := range people {
		if len(f.Answers[i]) != requests {
			return fmt.Errorf("there is evidence of %d requests of %s, the command line asks for %d", len(f.Answers[i]), who.name, requests)
		}
		for n, one := range f.Answers[i] {
			uri, headers := clientRequest(people, i, n)
			if one.Request.Method+" "+one.Request.URL != "GET "+uri || !maps.EqualFunc(one.Request.Headers, headers, slices.Equal) {
				return fmt.Errorf("request %d of %s was %s %s with the headers %v, and has to be GET %s with %v", n, who.name, one.Request.Method, one.Request.URL, one.Request.Headers, uri, headers)
			}
			want := http.StatusOK
			if n%len(paths) == 0 && i%2 != 0 {
				want = http.StatusForbidden
			}
			if one.Code != want {
				part.fail("%s %s: code %d, want %d", who.name, uri, one.Code, want)
			}
			if rows[who.name+" "+uri] != 1 {
				part.fail("the deputy has %d rows of %s, %s", rows[who.name+" "+uri], who.name, uri)
			}
		}
	}
	return nil
}
