package deputy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/deputy/reference"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Namespace is the namespace in which users may list pods, on a control plane of ours.
const Namespace = "users"

// newUsers returns people who use the deputy.
func newUsers(n int) (users []*Identity) {
	for i := range n {
		users = append(users, impersonatedPerson(fmt.Sprintf("client-%d@corp", i), tierOf(i)))
	}
	return users
}

// tierOf returns the group of the tier that the i-th person is in.
func tierOf(i int) string { return reference.TierPrefix + reference.Tiers()[i%5] }

// userGrants returns grants by which every n-th of the people may read pods, and may be redirected by the API server.
func userGrants(people []*Identity, n int) (grants []scenarios.Grant) {
	for i := 0; i < len(people); i += n {
		who := scenarios.Subject{User: people[i].Name}
		grants = append(grants,
			scenarios.Grant{
				Subject:   who,
				Verbs:     []string{"get", "list", "watch"},
				APIGroups: []string{""},
				Resources: []string{"pods"},
				Namespace: Namespace,
			},
			scenarios.Grant{Subject: who, Verbs: []string{"get"}, NonResourceURLs: []string{"/debug/pprof"}},
		)
	}
	return grants
}

// everySecondPerson is the step of the grants where the reference deputy is used, so that half of the people are
// refused.
const everySecondPerson = 2

// sessionHeader stands for the cookie of a session. It says who sits in front of the browser.
const sessionHeader = "X-Session"

// withSessions returns people with the credentials by which a deputy knows them.
func withSessions(people []*Identity) []*Identity {
	return seq.Map(people, func(p *Identity) *Identity {
		return &Identity{Name: p.Name, Groups: p.Groups, headers: []header{{sessionHeader, p.Name}}}
	})
}

// requestsOfEverybody returns requests that everybody sends at the same time, on a connection of their own: plain ones,
// and ones that try to be made as the next person. With two clusters they are for each cluster in turn.
func requestsOfEverybody(people []*Identity, requests int, twoClusters bool) (all []attack) {
	for i, p := range people {
		next := people[(i+1)%len(people)].Name
		plain := repeatRequest(rawRequest{Who: p.Name, Method: "GET", Lines: []string{"{who}"}}, requests, twoClusters)
		tricky := repeatRequest(
			rawRequest{
				Who:    p.Name,
				Method: "GET",
				Lines:  []string{"{who}", "Impersonate-User: " + next, "Impersonate-Group: system:masters"},
			},
			requests,
			twoClusters,
		)
		all = append(all,
			attack{Name: p.Name + " among all", Requests: plain, Arrives: arrivesAlways, concurrent: true},
			attack{Name: p.Name + " among all, as " + next, Requests: tricky, concurrent: true})
	}
	return all
}

// repeatRequest returns a request the given number of times. With two clusters the copies are for each cluster in turn.
func repeatRequest(r rawRequest, times int, twoClusters bool) (all []rawRequest) {
	for n := range times {
		r.Cluster, r.Target = firstClusterOnly, "{path}?{query}"
		if twoClusters && n%2 == 1 {
			r.Cluster, r.Target = secondClusterOnly, "{there}?{query}"
		}
		all = append(all, r)
	}
	return all
}

// auditLogsEvidence is what was seen while everybody sent requests.
type auditLogsEvidence struct {
	// Routes are in the order of listRoutes.
	Routes []routeEvidence `json:"ways"`
	// Others are the events of the proxy identity in that time to which no row of the deputy belongs.
	Others []auditv1.Event `json:"others,omitempty"`
}

// routeEvidence is what became of the requests on one route, and the log of the deputy on it.
type routeEvidence struct {
	Attacks *attacksEvidence `json:"attacks"`
	Rows    []reference.Row  `json:"rows,omitempty"`
}

// sendForEverybody sends the requests of everybody.
func (ep *endpoint) sendForEverybody(ctx context.Context, requests int) (*attacksEvidence, error) {
	all := requestsOfEverybody(ep.people, requests, ep.other != nil)
	return ep.sendAttacks(ctx, all, len(all))
}

// referenceDeputy is a running reference deputy with its audit log.
type referenceDeputy struct {
	*endpoint

	mu   sync.Mutex
	rows []reference.Row
}

// newReferenceDeputy starts a reference deputy that knows the given people, in front of an address of a cluster.
func (p *plane) newReferenceDeputy(
	ctx context.Context,
	to *url.URL,
	cluster string,
	rt http.RoundTripper,
	token string,
	people []*Identity,
) (*referenceDeputy, error) {
	d := &referenceDeputy{}
	tiers, sessions := map[string]string{}, map[string]reference.User{}
	for _, person := range people {
		group := "idp-" + person.Groups[0]
		tiers[group] = strings.TrimPrefix(person.Groups[0], reference.TierPrefix)
		sessions[person.Name] = reference.User{Subject: person.Name, Groups: []string{group}}
	}
	handler, err := reference.New(reference.Options{
		Target: to, Cluster: cluster, Transport: rt, Token: token, GroupTiers: tiers,
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
	d.endpoint, err = p.serve(ctx, handler, withSessions(people))
	return d, err
}

// useReferenceDeputies has everybody use two reference deputies: one in front of the API server, and one in front of a
// tunnel.
func (p *plane) useReferenceDeputies(ctx context.Context, agent *endpoint, requests int) (*auditLogsEvidence, error) {
	cluster := cmp.Or(agent.cluster, localCluster)
	direct, err := p.newReferenceDeputy(ctx, p.url, cluster, p.transport, p.token, agent.people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = direct.close() }()
	tunnelled, err := p.newReferenceDeputy(ctx, agent.url, cluster, agent.client(&Identity{}).Transport, "", agent.people)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tunnelled.close() }()
	return p.compareLogs(ctx, truncatedNow(), requests, direct, tunnelled)
}

// compareLogs uses deputies, and reads their logs and the API server's. In the latter, events from before began may
// still arrive.
func (p *plane) compareLogs(ctx context.Context, began time.Time, requests int, deputies ...*referenceDeputy) (*auditLogsEvidence, error) {
	e, ids := &auditLogsEvidence{}, sets.New[string]()
	for _, d := range deputies {
		evidence, err := d.sendForEverybody(ctx, requests)
		if err != nil {
			return nil, err
		}
		e.Routes = append(e.Routes, routeEvidence{evidence, d.rows})
		ids.Insert(seq.Map(d.rows, func(row reference.Row) string { return row.AuditID })...)
	}
	others, err := p.EventsBy(proxyName)
	e.Others = seq.Filter(others, func(o auditv1.Event) bool {
		return !o.RequestReceivedTimestamp.Time.Before(began) && !ids.Has(string(o.AuditID))
	})
	return e, err
}
