package deputy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Namespace is where the users may list pods, on a control plane of ours.
const Namespace = "users"

// newUsers returns people who use the deputy.
func newUsers(n int) (users []*Identity) {
	for i := range n {
		users = append(users, impersonatedPerson(fmt.Sprintf("client-%d@corp", i), tierOf(i)))
	}
	return users
}

func tierOf(i int) string { return reference.TierPrefix + reference.Tiers()[i%5] }

// userGrants returns grants with which every n-th of some people may read pods, and be redirected by the API server.
func userGrants(people []*Identity, n int) (grants []scenarios.Grant) {
	for i := 0; i < len(people); i += n {
		who := scenarios.Subject{User: people[i].Name}
		grants = append(grants,
			scenarios.Grant{Subject: who, Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}, Namespace: Namespace},
			scenarios.Grant{Subject: who, Verbs: []string{"get"}, NonResourceURLs: []string{"/debug/pprof"}})
	}
	return grants
}

// everyOther is the step of the grants where the reference deputy is used: half of the people are refused.
const everyOther = 2

// sessionHeader stands for a session's cookie: it says who is in front of the browser.
const sessionHeader = "X-Session"

// inSession returns people as a deputy knows them.
func inSession(people []*Identity) []*Identity {
	return seq.Map(people, func(p *Identity) *Identity {
		return &Identity{Name: p.Name, Groups: p.Groups, headers: []header{{sessionHeader, p.Name}}}
	})
}

// requestsOfAll returns requests that everybody sends at once, on a connection each: plain ones, and ones that try to be
// made as the next person.
func requestsOfAll(people []*Identity, requests int) (all []attack) {
	for i, p := range people {
		next := people[(i+1)%len(people)].Name
		plain := rawRequest{Who: p.Name, Method: "GET", Target: "{path}?{query}", Lines: []string{"{who}"}}
		tricky := plain
		tricky.Lines = []string{"{who}", "Impersonate-User: " + next, "Impersonate-Group: system:masters"}
		all = append(all,
			attack{Name: p.Name + " among all", Requests: slices.Repeat([]rawRequest{plain}, requests), Arrives: arrivesAlways, concurrent: true},
			attack{Name: p.Name + " among all, as " + next, Requests: slices.Repeat([]rawRequest{tricky}, requests), concurrent: true})
	}
	return all
}

// auditLogsEvidence is what was seen while everybody sent requests.
type auditLogsEvidence struct {
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

// useByAll sends the requests of everybody.
func (ep *endpoint) useByAll(ctx context.Context, requests int) (*attacksEvidence, error) {
	all := requestsOfAll(ep.people, requests)
	return ep.sendAttacks(ctx, all, len(all))
}

// referenceDeputy is a running reference deputy with its audit log.
type referenceDeputy struct {
	*endpoint

	mu   sync.Mutex
	rows []reference.Row
}

// newReferenceDeputy starts a reference deputy in front of an address, which knows some people.
func (p *plane) newReferenceDeputy(ctx context.Context, to *url.URL, rt http.RoundTripper, token string, people []*Identity) (*referenceDeputy, error) {
	d := &referenceDeputy{}
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
			d.mu.Lock()
			defer d.mu.Unlock()
			d.rows = append(d.rows, row)
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	d.endpoint, err = p.serve(ctx, handler, inSession(people))
	return d, err
}

// useReferenceDeputies lets everybody use two reference deputies: one in front of the API server, and one in front of a tunnel.
func (p *plane) useReferenceDeputies(ctx context.Context, agent *endpoint, requests int) (*auditLogsEvidence, error) {
	direct, err := p.newReferenceDeputy(ctx, p.url, p.transport, p.token, agent.people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = direct.close() }()
	tunnelled, err := p.newReferenceDeputy(ctx, agent.url, agent.client(&Identity{}).Transport, "", agent.people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tunnelled.close() }()
	return p.compareLogs(ctx, now(), requests, direct, tunnelled)
}

// compareLogs uses deputies, and reads their logs and the API server's, in which events from before began may still come in.
func (p *plane) compareLogs(ctx context.Context, began time.Time, requests int, deputies ...*referenceDeputy) (*auditLogsEvidence, error) {
	e, ids := &auditLogsEvidence{}, sets.New[string]()
	for _, d := range deputies {
		seen, err := d.useByAll(ctx, requests)
		if err != nil {
			return nil, err
		}
		e.Ways = append(e.Ways, wayEvidence{seen, d.rows})
		ids.Insert(seq.Map(d.rows, func(row reference.Row) string { return row.AuditID })...)
	}
	others, err := p.EventsBy(proxyName)
	e.Others = seq.Filter(others, func(o auditv1.Event) bool {
		return !o.RequestReceivedTimestamp.Time.Before(began) && !ids.Has(string(o.AuditID))
	})
	return e, err
}
