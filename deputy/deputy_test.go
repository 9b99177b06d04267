package deputy

import (
	"context"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"

	authorizationv1 "k8s.io/api/authorization/v1"
)

func options(t *testing.T) server.Options {
	t.Helper()
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gate: "on", Binaries: &local.Binaries{Progress: os.Stderr}}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	return cells[0]
}

// TestRun runs all of it.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	report, _, err := Run(context.Background(), Options{
		Target: options(t), Impersonation: Impersonations(), Pairs: 1000, Users: 50, Requests: 6, Seed: 3, Progress: func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Parts {
		t.Log(p.Line(), strings.Join(p.Failures, "\n"))
	}
	if report.Failed() || len(report.Parts) != 8 {
		t.Error("see above")
	}
	for _, p := range report.Parts {
		for _, want := range map[string][]string{
			"preflight": {string(yes), string(no), string(unreachable)}, "audit-logs": {"correlated"},
			"attacks": {asPerson, "refused by the proxy", "refused by the API server"}, "tunnel": {"streamed", "down, and said so"},
		}[p.Name] {
			if p.Outcomes[want] == 0 {
				t.Errorf("%s, %s: nothing was %q", p.Name, p.Impersonation, want)
			}
		}
	}
}

// TestBroken shows that what is wrong is found: agents that are wrong on purpose, a
// deputy that loses or confuses rows, and a proxy that may do less than is asked of it.
func TestBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx := context.Background()
	w, random := newFixture(3, somebody())
	people := users(4)
	grants := slices.Concat(w.grants, userGrants(people, 2), proxyGrants(slices.Concat(w.people, people), true))
	grants = slices.DeleteFunc(grants, func(g scenarios.Grant) bool { // the action on ConfigMaps
		return g.Subject.User == proxyName && slices.Contains(g.Resources, "configmaps")
	})
	p, err := start(ctx, options(t), grants, append(slices.Clone(w.namespaces), Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	t.Run("preflight", func(t *testing.T) {
		agent, err := p.agent(ctx, p.url, people)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = agent.close() }()
		pairs := slices.DeleteFunc(w.pairs(random), func(q pair) bool { return q.kind.resource != "configmaps" || !w.granted(q) || q.who.outOfReach })
		s := &suite{kind: constrained, fixture: w, pairs: pairs[:min(20, len(pairs))]}
		part := newPart()
		e, err := agent.preflight(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		part.ended = time.Now()
		if err := e.judge(part, s); err != nil {
			t.Fatal(err)
		}
		if part.Failed == 0 || !strings.Contains(part.Failures[0], `the pre-flight says "allowed", the request is "not for the proxy"`) {
			t.Errorf("%d of %d failed: %q", part.Failed, part.Checks, part.Failures)
		}
	})
	for name, c := range faultyAgents(p) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			ep, err := p.serve(ctx, c.handler, people)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ep.close() }()
			part := attacked(t, ep, proxyName, true)
			if !slices.ContainsFunc(part.Failures, func(f string) bool { return strings.Contains(f, c.finds) }) {
				t.Errorf("found %q, not %q", part.Failures, c.finds)
			}
		})
	}
	t.Run("audit-logs", func(t *testing.T) {
		agent, err := p.agent(ctx, p.url, people)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = agent.close() }()
		// The event of an earlier request may come in later.
		if resp, err := agent.get(ctx, "/version", people[0]); err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		part := newPart()
		e, err := p.deputies(ctx, agent, 3)
		if err != nil {
			t.Fatal(err)
		}
		part.ended = time.Now()
		rows := e.Ways[0].Rows
		rows[0].Actor, rows[1].AuditID = "somebody-else", "lost"
		e.Ways[1].Rows = e.Ways[1].Rows[1:]
		e.Ways[0].Attacks.Attacks[0].Answers[0].Code = http.StatusTeapot
		if err := e.judge(part, &suite{kind: constrained, fixture: w, people: people, requests: 3, account: proxyName, reference: true}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"misattributed: ", "lost: ", "has no row of the deputy", "code 418, want 200"} {
			if !slices.ContainsFunc(part.Failures, func(f string) bool { return strings.Contains(f, want) }) {
				t.Errorf("%q, without %q", part.Failures, want)
			}
		}
		if part.Failed != 5 { // the event of the lost row has none either
			t.Errorf("%q", part.Failures)
		}
	})
}

// inTurn are some of a list of names, others for every AUTHZCONF_SAMPLE; with AUTHZCONF_FAULTY all.
func inTurn(all []string) []string {
	if os.Getenv("AUTHZCONF_FAULTY") != "" {
		return all
	}
	n, _ := strconv.Atoi(os.Getenv("AUTHZCONF_SAMPLE"))
	const some = 5
	return slices.Concat(all, all)[n%len(all):][:min(some, len(all))]
}

// newPart is a part of the suite that runs from now on.
func newPart() *Part {
	return &Part{Outcomes: map[string]int{}, By: map[string]int{}, ids: map[string]bool{}, began: now()}
}

// attacked is what the attacks() of attacks shows of an endpoint.
func attacked(t *testing.T, ep *endpoint, account string, reference bool) *Part {
	t.Helper()
	part := newPart()
	e, err := ep.attack(context.Background(), attacks(), 1)
	if err != nil {
		t.Fatal(err)
	}
	part.ended = time.Now()
	if err := e.judge(part, attacks(), ep.people, account, reference); err != nil {
		t.Fatal(err)
	}
	return part
}

type faultyAgent struct {
	handler http.Handler
	finds   string
}

// faultyAgents are wrong, each in one way. The first is the agent as the article describes it.
func faultyAgents(p *plane) map[string]faultyAgent {
	naive := func(change func(in, out http.Header)) http.Handler {
		return &httputil.ReverseProxy{
			Transport: p.transport,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(p.url)
				token := "Bearer " + p.token
				r.Out.Header.Set("Authorization", token)
				change(r.In.Header, r.Out.Header)
			},
		}
	}
	var mixed http.Header
	return map[string]faultyAgent{
		"as the article has it": {naive(func(http.Header, http.Header) {}), "Connection names the user: it was made as the proxy itself"},
		"strips impersonation":  {naive(func(_, out http.Header) { out.Del("Impersonate-User") }), "no identity at all: it was made as the proxy itself"},
		"keeps a foreign token": {naive(func(in, out http.Header) {
			if a := in.Get("Authorization"); a != "" {
				out.Set("Authorization", a)
			}
		}), "a foreign Authorization: its own Authorization reached the API server"},
		"leaks headers to the next request": {naive(func(in, out http.Header) {
			if mixed != nil && out.Get("Impersonate-User") != "" {
				out["Impersonate-User"] = mixed["Impersonate-User"]
			}
			if mixed == nil {
				mixed = http.Header{"Impersonate-User": {"client-1@corp"}}
			}
			_ = in
		}), `it was made as "client-1@corp"`},
	}
}

func TestJudge(t *testing.T) {
	reach, out := pair{who: &Identity{Name: "a"}}, pair{who: &Identity{Name: "b", outOfReach: true}}
	allowed := authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC: allowed by RoleBinding"}
	for _, c := range []struct {
		name              string
		pair              pair
		granted           bool
		said, did, listed answer
		status            authorizationv1.SubjectAccessReviewStatus
		wrong             int
	}{
		{"allowed", reach, true, yes, yes, yes, allowed, 0},
		{"denied", reach, false, no, no, no, authorizationv1.SubjectAccessReviewStatus{}, 0},
		{"out of reach", out, true, unreachable, unreachable, unreachable, authorizationv1.SubjectAccessReviewStatus{}, 0},
		{"a yes that is none", reach, true, yes, no, yes, allowed, 3},
		{"a no that is a yes", reach, false, no, yes, yes, authorizationv1.SubjectAccessReviewStatus{}, 2},
		{"rules that say otherwise", reach, true, yes, yes, no, allowed, 1},
		{"a yes without a reason", reach, true, yes, yes, yes, authorizationv1.SubjectAccessReviewStatus{Allowed: true}, 1},
		{"a no with a reason", reach, false, no, no, no, authorizationv1.SubjectAccessReviewStatus{Reason: "because"}, 1},
		{"a yes for one who is out of reach", out, true, yes, yes, yes, allowed, 1},
	} {
		if wrong := judge(c.pair, c.granted, c.said, c.did, c.listed, c.status); len(wrong) != c.wrong {
			t.Errorf("%s: %q", c.name, wrong)
		}
	}
}

// The same seed makes the same fixture, with questions of every kind.
func TestFixture(t *testing.T) {
	a, randomA := newFixture(5, somebody())
	b, randomB := newFixture(5, somebody())
	pairs := a.pairs(randomA)
	if !slices.EqualFunc(pairs, b.pairs(randomB), func(x, y pair) bool { return x.String() == y.String() }) {
		t.Error("the same seed makes other pairs")
	}
	granted, seen := 0, map[string]bool{}
	for _, p := range pairs {
		if a.granted(p) {
			granted++
		}
		seen[p.verb], seen[p.kind.full()], seen[p.who.Name], seen[p.namespace] = true, true, true, true
	}
	if want := len(verbs) + len(kinds) + peopleCount + spaceCount + 1; len(seen) != want || granted < 100 || granted > len(pairs)-100 {
		t.Errorf("%d pairs, %d of them granted, %d values of %d", len(pairs), granted, len(seen), want)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Impersonation: Impersonations(), Pairs: 1, Users: 1, Requests: 1}
	if err := good.Check(true); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Impersonation = []string{"x"} }, func(o *Options) { o.Parts = []string{"x"} }, func(o *Options) { o.Pairs = 0 },
	} {
		o := good
		if change(&o); o.Check(true) == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// Every button asks about something that can be asked, and a page without buttons about the rules.
func TestButtons(t *testing.T) {
	for _, g := range buttons() {
		questions, requests := g.asks(&Identity{Name: "a"}, "team")
		if len(questions) != len(g.Asks) || len(requests) != max(1, len(g.Asks)) {
			t.Errorf("%s: %d questions, %d requests", g.Page, len(questions), len(requests))
		}
		for i, q := range questions {
			if !slices.Contains(sortedVerbs(), q.verb) || q.kind.resource == "" || strings.ContainsAny(q.kind.full(), " .") || q.namespace != "team" {
				t.Errorf("%s: %q is %+v", g.Page, g.Asks[i], q)
			}
		}
	}
	questions, _ := buttons()[1].asks(&Identity{}, "team")
	if got := question(questions[3].attributes()); got != "patch deployments/scale apps v1 team " {
		t.Errorf("got %q", got)
	}
}
