package predict

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// reference is a cluster of one API server that is made from the oracle, with real users and requests, and with the
// cache that API servers have for answers of webhooks.
type reference struct {
	*group
	rbac    RBAC
	server  *oracle.Server
	answers *cache.LRUExpireCache
	now     time.Duration
}

// Now implements cache.Clock.
func (r *reference) Now() time.Time { return time.Unix(0, 0).Add(r.now) }

func newReference(t *testing.T, p *Plan, g *group) *reference {
	server, err := oracle.New(
		oracle.Config{Kubernetes: newest(), Gate: p.Gate, Chain: authorizers(g.Workload.Mode, p.RBAC, p.Authorizer.Chain)},
	)
	if err != nil {
		t.Fatal(err)
	}
	r := &reference{group: g, rbac: p.RBAC, server: server}
	r.answers = cache.NewLRUExpireCacheWithClock(p.Authorizer.Size, r)
	return r
}

// ask sends a request, and returns how many checks and reviews it leads to.
func (r *reference) ask(p *Plan, u *unit, request int32, at time.Duration) (checks, reviews int64) {
	r.server.Advance(at - r.now)
	r.now = at
	requestor, imp, attributes := r.describe(u, request)
	sequences, _ := r.server.Do(requestor, imp, attributes).Sequences()
	for _, review := range sequences[0] {
		checks++
		st := step{allowed: review.Allowed(), isOfNode: slices.Contains(review.Spec.Groups, user.NodesGroup)}
		reaches, life := p.Authorizer.review(st)
		if !reaches {
			continue
		}
		raw, _ := json.Marshal(review.Spec)
		if _, isKnown := r.answers.Get(string(raw)); isKnown {
			continue
		}
		reviews++
		if life > 0 {
			r.answers.Add(string(raw), true, life)
		}
	}
	return checks, reviews
}

// describe returns a request of a unit, with names of its own.
func (r *reference) describe(u *unit, request int32) (scenarios.User, *scenarios.Impersonate, oracle.Request) {
	_, imp, attributes := sampleRequest(r.Workload, r.rbac)
	node, pod := fmt.Sprintf("node-%d", u.subject), fmt.Sprintf("pod-%d", u.deputy)
	attributes.Attributes = oracle.ParseRequest(http.MethodGet, &url.URL{
		Path: fmt.Sprintf("/api/v1/namespaces/space-%d/pods", request), RawQuery: "fieldSelector=spec.nodeName%3D" + node,
	})
	switch {
	case r.Workload.Mode == oracle.ArbitraryNode:
		imp.User, node = "system:node:"+node, node+"-not"
	case r.isOfNodes():
		imp.User = "system:node:" + node
	default: // all users ask the same
		attributes.Attributes = oracle.ParseRequest(
			http.MethodGet,
			&url.URL{Path: fmt.Sprintf("/api/v1/namespaces/space-%d/pods", request)},
		)
		imp.User, node = fmt.Sprint(imp.User, "-", u.subject), "node"
		for i := range imp.Groups {
			imp.Groups[i] += fmt.Sprint("-", u.subject)
		}
		for key, values := range imp.Extra {
			for i := range values {
				imp.Extra[key][i] += fmt.Sprint("-", u.subject)
			}
		}
	}
	requestor := oracle.RequestorOf(pod, scenarios.Requestor{ServiceAccount: &scenarios.ServiceAccount{
		Namespace: "agents", Name: fmt.Sprint("account-", u.account), Pod: pod, Node: node,
	}})
	return requestor, imp, attributes
}

// TestSimulationIsTheOracle checks that the simulation counts, request by request, what the oracle counts behind the
// cache of Kubernetes itself.
func TestSimulationIsTheOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 0))
	for range plans(150) {
		p := randomPlan(t, r)
		w := &p.Workloads[0]
		p.APIServers, w.Nodes, w.Users = 1, min(w.Nodes, 12), min(w.Users, 24)
		w.Deputies = min(w.Deputies, w.Users)
		p.Modes = 10_000
		p.Authorizer.Takes, p.Authorizer.Size = 1, pick(r, 8192, 1+r.IntN(60))
		w.Every = scenarios.Duration(time.Duration(1+r.IntN(40)) * 997 * time.Millisecond)
		all := append(p.Situations(), Situation{scenarios.GateOn, NoRBAC}, Situation{scenarios.GateOff, ConstrainedRBAC})
		for _, s := range all {
			p.Gate, p.RBAC = s.Gate, s.RBAC
			compareRequests(t, p, r)
		}
	}
}

// compareRequests lets everybody ask a few times at random, and compares what each request leads to.
func compareRequests(t *testing.T, p *Plan, r *rand.Rand) {
	t.Helper()
	script, err := newScript(p.Workloads[0], p.Situations()[0], p.Authorizer.Chain)
	if err != nil {
		t.Fatal(err)
	}
	if p.Workloads[0].Mode == oracle.Legacy && p.RBAC == ConstrainedRBAC {
		p.RBAC = LegacyRBAC
	}
	var n numbers
	g := newGroup(0, p.Workloads[0], script, 1, &n)
	s, want := newSimulation(p, []*group{g}, n), newReference(t, p, g)
	at := time.Duration(0)
	for range 200 {
		at += time.Duration(1+r.IntN(int(g.every/time.Millisecond)))*time.Millisecond/4 + time.Microsecond
		index := int32(r.IntN(len(g.units)))
		u := &g.units[index]
		checks, reviews := want.ask(p, u, u.turn, at)
		tally := s.watch(at)
		s.serve(g, index, at)
		if got := tally.seconds[0]; got.Checks != checks || got.Reviews != reviews {
			t.Fatalf(
				"%s at %s: %+v, the oracle has %d checks and %d reviews: %+v",
				s.plan.Situations()[0].describe(),
				at,
				got,
				checks,
				reviews,
				*p,
			)
		}
	}
}
