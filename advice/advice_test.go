package advice_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// event is an audit event, by an agent in a pod on node-1 unless by says otherwise.
func event(by, verb, uri string, as authenticationv1.UserInfo, constraint string) *auditv1.Event {
	e := &auditv1.Event{
		Stage: "ResponseComplete", Verb: verb, RequestURI: uri,
		User: authenticationv1.UserInfo{Username: by}, ImpersonatedUser: &as,
	}
	if by == agent {
		e.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"node-1"}}
	}
	if constraint != "" {
		e.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
	}
	return e
}

const (
	agent = "system:serviceaccount:agents:agent"
	pods  = "/api/v1/namespaces/shop/pods"
)

func user(name string, groups ...string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: name, Groups: append(groups, "system:authenticated")}
}

func bookOf(t testing.TB, o advice.Options, events ...*auditv1.Event) *advice.Summary {
	t.Helper()
	b, err := advice.NewSummary(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := b.Add(e, false); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func lines(grants []scenarios.Grant) (out []string) {
	for _, g := range grants {
		line := fmt.Sprintf("%v %v", g.Verbs, g.NonResourceURLs)
		if len(g.NonResourceURLs) == 0 {
			line = fmt.Sprintf("%v %q %v", g.Verbs, g.APIGroups, g.Resources)
		}
		if len(g.Names) > 0 {
			line += fmt.Sprintf(" %v", g.Names)
		}
		if g.Namespace != "" {
			line += " in " + g.Namespace
		}
		out = append(out, line)
	}
	return out
}

func TestAdvice(t *testing.T) {
	extra := user("alice")
	extra.UID, extra.Extra = "17", map[string]authenticationv1.ExtraValue{"corp.example/team": {"blue"}}
	scopes := user("alice")
	scopes.Extra = map[string]authenticationv1.ExtraValue{"scopes": {"view"}}
	accountWithUID := user("system:serviceaccount:ci:bot", "system:serviceaccounts", "system:serviceaccounts:ci")
	accountWithUID.UID = "1"
	for _, c := range []struct {
		name   string
		events []*auditv1.Event
		want   []string
		kept   string
	}{
		{"a user", []*auditv1.Event{event("d", "list", pods+"?limit=5", user("alice"), "")}, []string{
			`[impersonate:user-info] ["authentication.k8s.io"] [users] [alice]`, `[impersonate-on:user-info:list] [""] [pods] in shop`,
		}, ""},
		{"UID, group and extra", []*auditv1.Event{event("d", "get", pods+"/web", extra, "")}, []string{
			`[impersonate:user-info] ["authentication.k8s.io"] [uids] [17]`,
			`[impersonate:user-info] ["authentication.k8s.io"] [userextras/corp.example/team] [blue]`,
			`[impersonate:user-info] ["authentication.k8s.io"] [users] [alice]`,
			`[impersonate-on:user-info:get] [""] [pods] [web] in shop`,
		}, ""},
		{"four groups, one by one", []*auditv1.Event{event("d", "get", "/version", user("alice", "a", "b", "c", "d"), "")}, []string{
			`[impersonate:user-info] ["authentication.k8s.io"] [groups] [a b c d]`,
			`[impersonate:user-info] ["authentication.k8s.io"] [users] [alice]`, `[impersonate-on:user-info:get] [/version]`,
		}, ""},
		{"its own node", []*auditv1.Event{event(agent, "list", "/api/v1/pods", user("system:node:node-1"), "")}, []string{
			`[impersonate:associated-node] ["authentication.k8s.io"] [nodes]`, `[impersonate-on:associated-node:list] [""] [pods]`,
		}, ""},
		{"its own node, by the mode for any: the narrower one", []*auditv1.Event{event(agent, "list", "/api/v1/pods", user("system:node:node-1", "system:nodes"), "impersonate:arbitrary-node")}, []string{
			`[impersonate:associated-node] ["authentication.k8s.io"] [nodes]`, `[impersonate-on:associated-node:list] [""] [pods]`,
		}, ""},
		{"another node", []*auditv1.Event{event(agent, "get", "/api/v1/nodes/node-2", user("system:node:node-2", "system:nodes"), "impersonate:arbitrary-node")}, []string{
			`[impersonate:arbitrary-node] ["authentication.k8s.io"] [nodes] [node-2]`, `[impersonate-on:arbitrary-node:get] [""] [nodes] [node-2]`,
		}, ""},
		{"a node with its group, which only legacy takes: without it the node is the same", []*auditv1.Event{event(agent, "get", "/version", user("system:node:node-1", "system:nodes"), "")}, []string{
			`[impersonate:associated-node] ["authentication.k8s.io"] [nodes]`, `[impersonate-on:associated-node:get] [/version]`,
		}, "by name alone"},
		{"a node with another group", []*auditv1.Event{event(agent, "get", "/version", user("system:node:node-1", "system:nodes", "dev"), "")}, nil, "by name alone"},
		{"a service account with its groups in another order", []*auditv1.Event{event("d", "get", "/version", user("system:serviceaccount:ci:bot", "system:serviceaccounts:ci", "system:serviceaccounts"), "")}, []string{
			`[impersonate-on:serviceaccount:get] [/version]`, `[impersonate:serviceaccount] ["authentication.k8s.io"] [serviceaccounts] [bot] in ci`,
		}, "by name alone"},
		{"a service account with one of its groups", []*auditv1.Event{event("d", "get", "/version", user("system:serviceaccount:ci:bot", "system:serviceaccounts"), "")}, nil, "by name alone"},
		{"a service account", []*auditv1.Event{event("d", "create", pods, user("system:serviceaccount:ci:bot", "system:serviceaccounts", "system:serviceaccounts:ci"), "")}, []string{
			`[impersonate:serviceaccount] ["authentication.k8s.io"] [serviceaccounts] [bot] in ci`, `[impersonate-on:serviceaccount:create] [""] [pods] in shop`,
		}, ""},
		{"a service account with a UID", []*auditv1.Event{event("d", "get", "/version", accountWithUID, "")}, nil, "by name alone"},
		{"an extra key without a domain", []*auditv1.Event{event("d", "get", "/version", scopes, "")}, nil, "invalid key in extra"},
		{"system:masters", []*auditv1.Event{event("d", "get", "/version", user("alice", "system:masters"), "")}, nil, "system:masters group is not allowed"},
		{"anonymous", []*auditv1.Event{event("d", "get", "/version", authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}, "")}, []string{
			`[impersonate:user-info] ["authentication.k8s.io"] [users] [system:anonymous]`, `[impersonate-on:user-info:get] [/version]`,
		}, ""},
		{"a look-alike of a node", []*auditv1.Event{event("d", "get", "/version", user("system:node:Bad_Name"), "")}, []string{
			`[impersonate:user-info] ["authentication.k8s.io"] [users] [system:node:Bad_Name]`, `[impersonate-on:user-info:get] [/version]`,
		}, ""},
		{"equal parts are put together, and all names hold some", []*auditv1.Event{
			event("d", "get", pods+"/web", user("alice"), ""),
			event("d", "update", pods+"/web", user("alice"), ""),
			event("d", "get", "/api/v1/namespaces/shop/configmaps/web", user("bob"), ""),
			event("d", "update", "/api/v1/namespaces/shop/configmaps/web", user("bob"), ""),
			event("d", "get", pods+"/web/log", user("bob"), ""),
			event("d", "get", "/healthz", user("bob"), ""),
			event("d", "get", "/version", user("bob"), ""),
			event("d", "list", pods, user("bob"), ""),
			event("d", "list", pods+"?fieldSelector=metadata.name%3Dweb", user("bob"), ""),
			event("d", "list", "/apis/apps/v1/deployments", user("bob"), ""),
			event("d", "list", "/apis/apps/v1/namespaces/shop/deployments", user("bob"), ""),
		}, []string{
			`[impersonate:user-info] ["authentication.k8s.io"] [users] [alice bob]`,
			`[impersonate-on:user-info:list] ["apps"] [deployments]`,
			`[impersonate-on:user-info:get] [/healthz /version]`,
			`[impersonate-on:user-info:get impersonate-on:user-info:update] [""] [configmaps pods] [web] in shop`,
			`[impersonate-on:user-info:list] [""] [pods] in shop`,
			`[impersonate-on:user-info:get] [""] [pods/log] [web] in shop`,
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bookOf(t, advice.Options{}, c.events...)
			a := b.Advice()
			if diff := cmp.Diff(c.want, lines(a.Grants)); diff != "" {
				t.Error(diff)
			}
			if (c.kept == "") != (len(a.Kept) == 0) ||
				c.kept != "" && !strings.Contains(a.Kept[0].Why, c.kept) {
				t.Errorf("kept: %+v", a.Kept)
			}
			checkGranted(t, b, a.Grants)
		})
	}
}

// checkGranted checks that the model allows what was seen and denies all neighbours, and that no grant, verb or name is
// superfluous.
func checkGranted(t *testing.T, b *advice.Summary, grants []scenarios.Grant) {
	t.Helper()
	seen := b.Seen()
	neighbours, _ := advice.Neighbours(seen)
	wrong, err := check(grants, seen, neighbours)
	if err != nil || len(wrong) > 0 {
		t.Errorf("%v, %q", err, wrong)
	}
	for i, g := range grants {
		for _, less := range lessThan(g) {
			try := slices.Concat(grants[:i], less, grants[i+1:])
			if wrong, err := check(try, seen, nil); err != nil || len(wrong) == 0 {
				t.Errorf("%v: it would do with %v in place of %v", err, less, g)
			}
		}
	}
}

// lessThan are the ways to grant a little less.
func lessThan(g scenarios.Grant) (out [][]scenarios.Grant) {
	for _, list := range []func(*scenarios.Grant) *[]string{
		func(g *scenarios.Grant) *[]string { return &g.Verbs }, func(g *scenarios.Grant) *[]string { return &g.Resources },
		func(g *scenarios.Grant) *[]string { return &g.Names }, func(g *scenarios.Grant) *[]string { return &g.NonResourceURLs },
	} {
		for i, values := 0, *list(&g); i < len(values); i++ {
			less := g
			*list(&less) = slices.Concat(values[:i], values[i+1:])
			if len(*list(&less)) == 0 {
				out = append(out, nil) // without names it would be more
				continue
			}
			out = append(out, []scenarios.Grant{less})
		}
	}
	return out
}

// TestRandomLogs checks the same for random logs.
func TestRandomLogs(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		pick := func(list ...string) string { return list[random.IntN(len(list))] }
		var events []*auditv1.Event
		for range 1 + random.IntN(12) {
			as := user(pick("alice", "bob", "system:serviceaccount:ci:bot", "system:node:node-1", "system:node:node-2"))
			if random.IntN(3) == 0 {
				as = user("carol", pick("a", "b"), pick("c", "d"), "e", "f")
			}
			verb := "get"
			uri := pick(
				"/version",
				pods+"/web",
				pods+"/db",
				pods+"/web/log",
				"/apis/apps/v1/namespaces/shop/deployments/web",
				"/api/v1/nodes/node-1",
				"/api/v1/namespaces/shop",
			)
			if random.IntN(2) == 0 {
				verb = pick("list", "create", "deletecollection")
				uri = pick(pods, "/api/v1/namespaces/crm/pods", "/api/v1/pods", "/apis/apps/v1/deployments")
			}
			events = append(events, event(pick("d", agent), verb, uri, as, ""))
		}
		b := bookOf(t, advice.Options{}, events...)
		checkGranted(t, b, b.Advice().Grants)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestNeighboursFindWideGrants checks that a neighbour shows grants which are a little too wide.
func TestNeighboursFindWideGrants(t *testing.T) {
	b := bookOf(
		t,
		advice.Options{},
		event("d", "get", pods+"/web", user("alice"), ""),
		event("d", "list", pods, user("alice"), ""),
		event("d", "get", "/version", user("alice"), ""),
	)
	seen := b.Seen()
	neighbours, without := advice.Neighbours(seen)
	if len(without) > 0 || len(neighbours) != 12 {
		t.Errorf("%d neighbours, without %v", len(neighbours), without)
	}
	for what, widen := range map[string]func(*scenarios.Grant){
		"user":      func(g *scenarios.Grant) { g.Names = nil },
		"verb":      func(g *scenarios.Grant) { g.Verbs = []string{"*"} },
		"resource":  func(g *scenarios.Grant) { g.Resources = replaced(g.Resources) },
		"namespace": func(g *scenarios.Grant) { g.Namespace = "" },
		"path":      func(g *scenarios.Grant) { g.NonResourceURLs = replaced(g.NonResourceURLs) },
	} {
		grants := b.Advice().Grants
		for i := range grants {
			widen(&grants[i])
		}
		wrong, err := check(grants, seen, neighbours)
		if err != nil || !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, "another "+what) }) {
			t.Errorf("%s: %v, %q", what, err, wrong)
		}
	}
}

func replaced(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return []string{"*"}
}

func TestMaxNames(t *testing.T) {
	var events []*auditv1.Event
	for i := range 50 {
		events = append(events, event("d", "get", fmt.Sprintf("%s/web-%d", pods, i), user("alice"), ""))
	}
	events = append(events, event("d", "get", "/api/v1/namespaces/shop/configmaps/one", user("alice"), ""))
	b := bookOf(t, advice.Options{MaxNames: 3}, events...)
	a := b.Advice()
	diff := cmp.Diff([]string{
		`[impersonate:user-info] ["authentication.k8s.io"] [users] [alice]`,
		`[impersonate-on:user-info:get] [""] [configmaps] [one] in shop`, `[impersonate-on:user-info:get] [""] [pods] in shop`,
	}, lines(a.Grants))
	if diff != "" {
		t.Error(diff)
	}
	seen := b.Seen()
	neighbours, without := advice.Neighbours(seen)
	if wrong, err := check(a.Grants, seen, neighbours); err != nil || len(wrong) > 0 || len(seen) != 5 || without["name"] == 0 {
		t.Errorf("%v, %q, %d seen, %v", err, wrong, len(seen), without)
	}
}

func TestAdd(t *testing.T) {
	b := bookOf(t, advice.Options{MaxSeen: 2})
	for _, e := range []*auditv1.Event{event("d", "list", "pods", user("a"), ""), event("d", "get", pods, user("a"), ""), event("d", "list", "/version", user("a"), "")} {
		if err := b.Add(e, false); err == nil || errors.Is(err, advice.ErrTooMany) {
			t.Errorf("%s %s: %v", e.Verb, e.RequestURI, err)
		}
	}
	master := event("admin", "get", "/version", user("a"), "")
	master.User.Groups = []string{"system:masters"}
	if err := b.Add(master, false); err != nil ||
		!b.Empty() && len(b.Seen()) > 0 {
		t.Errorf("%v", err)
	}
	for i, name := range []string{"a", "a", "b", "c"} {
		if err := b.Add(event("d", "get", "/version", user(name), ""), i == 1); errors.Is(err, advice.ErrTooMany) != (name == "c") {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := b.Advice()
	if a.Masters["admin"] != 1 || len(a.Requestors) != 1 || a.Requestors[0].Requests != 2 {
		t.Errorf("%+v, %v", a.Requestors, a.Masters)
	}
	if s := b.Seen(); s[0].Mode != oracle.UserInfo || s[0].Count != 1 {
		t.Errorf("%+v", s)
	}
}
