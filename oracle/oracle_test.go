package oracle

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// grant gives a user one verb.
func grant(user, verb, group, resource string, names ...string) scenarios.Grant {
	return scenarios.Grant{
		Subject: scenarios.Subject{User: user}, Verbs: []string{verb},
		APIGroups: []string{group}, Resources: strings.Split(resource, ","), Names: names,
	}
}

func server(t testing.TB, gate scenarios.Gate, grants ...scenarios.Grant) *Server {
	t.Helper()
	s, err := New(Config{Kubernetes: "1.37", Gate: gate, Grants: grants})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	alice = Authenticated(scenarios.User{Name: "alice"})
	agent = RequestorOf(
		"agent",
		scenarios.Requestor{
			ServiceAccount: &scenarios.ServiceAccount{Namespace: "kube-system", Name: "agent", Pod: "agent-0", Node: "node1"},
		},
	)
	listPods = RequestOf(&scenarios.Request{Verb: "list", Resource: "pods"})
	getPods  = RequestOf(&scenarios.Request{Verb: "get", Resource: "pods", Namespace: "default", Name: "web"})
)

func checks(t testing.TB, p Prediction) int {
	t.Helper()
	least, greatest := p.ImpersonationChecks()
	if least != greatest {
		t.Fatalf("between %d and %d checks", least, greatest)
	}
	return least
}

// impersonation returns a user with u UIDs, k groups and v values of extra.
func impersonation(u, k, v int) *scenarios.Impersonate {
	w := &scenarios.Impersonate{User: "bob"}
	if u > 0 {
		w.UID = "uid"
	}
	for i := range k {
		w.Groups = append(w.Groups, fmt.Sprintf("group%d", i))
	}
	for i := range v {
		if w.Extra == nil {
			w.Extra = map[string][]string{}
		}
		w.Extra["acme.com/project"] = append(w.Extra["acme.com/project"], fmt.Sprintf("value%d", i))
	}
	return w
}

// TestUserInfoCost holds the formulas for a user with UID, groups and extra:
// "* allowed / * denied / legacy".
func TestUserInfoCost(t *testing.T) {
	names := func(prefix string) (out []string) {
		for i := range 8 {
			out = append(out, fmt.Sprintf("%s%d", prefix, i))
		}
		return out
	}
	action := grant("alice", "impersonate-on:user-info:list", "", "pods")
	verb := "impersonate:user-info"
	star := []scenarios.Grant{action, grant("alice", verb, authenticationGroup, "*")}
	oneByOne := []scenarios.Grant{
		action, grant("alice", verb, authenticationGroup, "users,uids"),
		grant("alice", verb, authenticationGroup, "groups", names("group")...),
		grant("alice", verb, authenticationGroup, "userextras/acme.com/project", names("value")...),
	}
	legacy := []scenarios.Grant{grant("alice", "impersonate", "*", "*")}
	for _, row := range []struct{ u, k, v, star, oneByOne, legacy int }{
		{0, 0, 0, 2, 2, 1}, {1, 0, 0, 3, 3, 2},
		{0, 3, 0, 5, 5, 4}, {0, 4, 0, 3, 7, 5}, {0, 8, 0, 3, 11, 9}, {0, 0, 4, 3, 7, 5},
		{1, 3, 3, 9, 9, 8}, {1, 4, 4, 5, 13, 10}, {1, 8, 8, 5, 21, 18},
	} {
		for name, c := range map[string]struct {
			grants []scenarios.Grant
			want   int
			gate   scenarios.Gate
		}{
			"* allowed": {star, row.star, scenarios.GateOn}, "* denied": {oneByOne, row.oneByOne, scenarios.GateOn},
			"gate off": {legacy, row.legacy, scenarios.GateOff}, "legacy, not in the index": {legacy, row.legacy + 1, scenarios.GateOn},
		} {
			s := server(t, c.gate, c.grants...)
			p := s.Do(alice, impersonation(row.u, row.k, row.v), listPods)
			if got := checks(t, p); got != c.want || p.User == nil {
				t.Errorf("%d,%d,%d %s: %d checks, want %d", row.u, row.k, row.v, name, got, c.want)
			}
			if name != "legacy, not in the index" {
				continue
			}
			if got := checks(t, s.Do(alice, impersonation(row.u, row.k, row.v), listPods)); got != row.legacy {
				t.Errorf("%d,%d,%d legacy in the index: %d checks, want %d", row.u, row.k, row.v, got, row.legacy)
			}
		}
	}
}

// TestCosts holds the other rows: checks of the first request, of the same
// again, of another request, and, eleven seconds later, of the first again.
func TestCosts(t *testing.T) {
	const agentName = "system:serviceaccount:kube-system:agent"
	act := func(mode Mode) scenarios.Grant {
		return grant(agentName, "impersonate-on:"+string(mode)+":*", "", "pods")
	}
	_ = act
	actions := func(mode Mode) []scenarios.Grant {
		return []scenarios.Grant{
			grant(agentName, "impersonate-on:"+string(mode)+":list", "", "pods"),
			grant(agentName, "impersonate-on:"+string(mode)+":get", "", "pods"),
		}
	}
	identity := func(mode Mode, resource string) scenarios.Grant {
		return grant(agentName, "impersonate:"+string(mode), authenticationGroup, resource)
	}
	legacyUsers := grant(agentName, "impersonate", "", "users,groups,serviceaccounts")
	own, other := &scenarios.Impersonate{User: "system:node:node1"}, &scenarios.Impersonate{User: "system:node:node2"}
	account := &scenarios.Impersonate{User: "system:serviceaccount:shop:app"}
	bob := &scenarios.Impersonate{User: "bob"}
	for name, c := range map[string]struct {
		grants []scenarios.Grant
		imp    *scenarios.Impersonate
		want   [4]int
		mode   Mode
	}{
		"associated-node": {append(actions(AssociatedNode), identity(AssociatedNode, "nodes")), own, [4]int{2, 0, 1, 2}, AssociatedNode},
		"action of associated denied, arbitrary": {
			append(actions(ArbitraryNode), identity(ArbitraryNode, "nodes")), own, [4]int{3, 0, 1, 2}, ArbitraryNode},
		"identity of associated denied, arbitrary": {
			slices.Concat(actions(AssociatedNode), actions(ArbitraryNode), []scenarios.Grant{identity(ArbitraryNode, "nodes")}),
			own,
			[4]int{4, 0, 1, 2},
			ArbitraryNode},
		"both denied, legacy":     {[]scenarios.Grant{legacyUsers}, own, [4]int{3, 1, 1, 1}, Legacy},
		"both identities denied":  {slices.Concat(actions(AssociatedNode), actions(ArbitraryNode), []scenarios.Grant{legacyUsers}), own, [4]int{5, 1, 1, 1}, Legacy},
		"all denied":              {nil, own, [4]int{3, 3, 3, 3}, ""},
		"another node":            {append(actions(ArbitraryNode), identity(ArbitraryNode, "nodes")), other, [4]int{2, 0, 1, 2}, ArbitraryNode},
		"another node, legacy":    {[]scenarios.Grant{legacyUsers}, other, [4]int{2, 1, 1, 1}, Legacy},
		"service account":         {append(actions(ServiceAccount), identity(ServiceAccount, "serviceaccounts")), account, [4]int{2, 0, 1, 2}, ServiceAccount},
		"service account, legacy": {[]scenarios.Grant{legacyUsers}, account, [4]int{2, 1, 1, 1}, Legacy},
		"node with a group":       {[]scenarios.Grant{legacyUsers}, &scenarios.Impersonate{User: own.User, Groups: []string{nodesGroup}}, [4]int{2, 2, 2, 2}, Legacy},
		"user":                    {append(actions(UserInfo), identity(UserInfo, "users")), bob, [4]int{2, 0, 1, 2}, UserInfo},
		"user denied, legacy":     {append(actions(UserInfo), legacyUsers), bob, [4]int{3, 1, 1, 1}, Legacy},
		"user in system:masters":  {append(actions(UserInfo), identity(UserInfo, "users"), legacyUsers), &scenarios.Impersonate{User: "bob", Groups: []string{mastersGroup}}, [4]int{4, 2, 2, 2}, Legacy},
		"user, everything denied": {nil, bob, [4]int{2, 2, 2, 2}, ""},
		"user, identity denied":   {actions(UserInfo), bob, [4]int{3, 3, 3, 3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, scenarios.GateOn, c.grants...)
			var got [4]int
			for i, r := range []Request{listPods, listPods, getPods, listPods} {
				if i == 3 {
					s.Advance(11 * time.Second)
				}
				p := s.Do(agent, c.imp, r)
				if p.Mode != c.mode {
					t.Errorf("request %d: mode %q, want %q", i, p.Mode, c.mode)
				}
				got[i] = checks(t, p)
			}
			if got != c.want {
				t.Errorf("checks %v, want %v", got, c.want)
			}
		})
	}
}

// TestSharedByPods is the other half of the row of associated-node: another pod
// on another node finds what the first one left.
func TestSharedByPods(t *testing.T) {
	s := server(
		t,
		scenarios.GateOn,
		grant(
			agent.Name,
			"impersonate-on:associated-node:list",
			"",
			"pods",
		),
		grant(agent.Name, "impersonate:associated-node", authenticationGroup, "nodes"),
	)
	other := RequestorOf(
		"other",
		scenarios.Requestor{
			ServiceAccount: &scenarios.ServiceAccount{Namespace: "kube-system", Name: "agent", Pod: "agent-1", Node: "node2"},
		},
	)
	s.Do(agent, &scenarios.Impersonate{User: "system:node:node1"}, listPods)
	p := s.Do(other, &scenarios.Impersonate{User: "system:node:node2"}, listPods)
	if n := checks(t, p); n != 0 || p.User.Name != "system:node:node2" {
		t.Errorf("%d checks as %q", n, p.User.Name)
	}
}

// TestIndexHolds evicts a requestor by ten thousand others.
func TestIndexHolds(t *testing.T) {
	s := server(
		t,
		scenarios.GateOn,
		scenarios.Grant{
			Subject:   scenarios.Subject{Group: authenticatedGroup},
			Verbs:     []string{"impersonate"},
			APIGroups: []string{""},
			Resources: []string{"users"},
		},
	)
	bob := &scenarios.Impersonate{User: "bob"}
	others := func(n int) {
		for i := range n {
			s.Do(Authenticated(scenarios.User{Name: fmt.Sprintf("user%d", i)}), bob, listPods)
		}
	}
	s.Do(alice, bob, listPods)
	others(indexSize - 1)
	if n := checks(t, s.Do(alice, bob, listPods)); n != 1 {
		t.Errorf("%d checks while in the index", n)
	}
	others(indexSize)
	if n := checks(t, s.Do(alice, bob, listPods)); n != 2 {
		t.Errorf("%d checks after eviction", n)
	}
}

// TestRandomDenial is the case in which the number of checks and the message
// depend on the order of a map.
func TestRandomDenial(t *testing.T) {
	s := server(
		t,
		scenarios.GateOff,
		grant("alice", "impersonate", "", "users"),
		grant("alice", "impersonate", authenticationGroup, "userextras/a.com/a"),
	)
	p := s.Do(
		alice,
		&scenarios.Impersonate{User: "bob", Extra: map[string][]string{"a.com/a": {"1", "2"}, "b.com/b": {"1"}, "c.com/c": {"1"}}},
		listPods,
	)
	if least, greatest := p.ImpersonationChecks(); least != 2 || greatest != 4 {
		t.Errorf("%d to %d checks, want 2 to 4", least, greatest)
	}
	if len(p.Messages) != 2 || p.Outcome != scenarios.ImpersonationForbidden {
		t.Errorf("%s: %q", p.Outcome, p.Messages)
	}
	// b or c ends it, with a before it or not, in two and two orders.
	if e := p.Expect(); e.Reviews != nil || e.Message != "" || len(e.OneOf) != 4 || len(p.Compare(e)) > 0 {
		t.Errorf("an expectation about what varies: %+v", e)
	}
}

func TestParseRequest(t *testing.T) {
	for _, c := range []struct {
		method, path, query string
		want                string // verb resource/subresource namespace name
	}{
		{"GET", "/version", "", "get /  "},
		{"GET", "/api/v1", "", "get /  "},
		{"GET", "/apis/apps/v1", "", "get /  "},
		{"GET", "/api/v1/pods", "", "list pods/  "},
		{"HEAD", "/api/v1/pods", "", "list pods/  "},
		{"GET", "/api/v1/pods", "watch=true", "watch pods/  "},
		{"GET", "/api/v1/pods", "watch=0", "list pods/  "},
		{"GET", "/api/v1/watch/pods", "", "watch pods/  "},
		{"GET", "/api/v1/namespaces", "", "list namespaces/  "},
		{"GET", "/api/v1/namespaces/shop", "", "get namespaces/ shop shop"},
		{"PUT", "/api/v1/namespaces/shop/finalize", "", "update namespaces/finalize shop shop"},
		{"GET", "/api/v1/namespaces/shop/pods/web/log", "", "get pods/log shop web"},
		{"DELETE", "/apis/apps/v1/namespaces/shop/deployments", "", "deletecollection deployments/ shop "},
		{"GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dweb", "list pods/  web"},
		{"GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dweb&labelSelector=!!", "list pods/  "},
		{"GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dweb&limit=x", "list pods/  "},
		{"POST", "/api/v1/namespaces/shop/pods/web/exec", "", "create pods/exec shop web"},
	} {
		a := ParseRequest(c.method, &url.URL{Path: c.path, RawQuery: c.query})
		got := fmt.Sprintf("%s %s/%s %s %s", a.Verb, a.Resource, a.Subresource, a.Namespace, a.Name)
		if got != c.want || a.ResourceRequest != (a.Resource != "") {
			t.Errorf("%s %s?%s: %q, want %q", c.method, c.path, c.query, got, c.want)
		}
	}
}

// TestDefaults asks what everybody may do without a grant.
func TestDefaults(t *testing.T) {
	s := server(t, scenarios.GateOn)
	anonymous := scenarios.User{Name: anonymousUser, Groups: []string{unauthenticatedGroup}}
	for _, c := range []struct {
		user scenarios.User
		path string
		want scenarios.Outcome
	}{
		{alice, "/apis/apps", scenarios.Allowed}, {anonymous, "/apis/apps", scenarios.RequestForbidden},
		{anonymous, "/version", scenarios.Allowed}, {alice, "/metrics", scenarios.RequestForbidden},
	} {
		if p := s.Do(c.user, nil, RequestOf(&scenarios.Request{Verb: "get", Path: c.path})); p.Outcome != c.want {
			t.Errorf("%s gets %s: %s", c.user.Name, c.path, p.Outcome)
		}
	}
}

// TestBuiltInRoles binds one: edit lets service accounts be impersonated, the
// old way.
func TestBuiltInRoles(t *testing.T) {
	s, err := New(Config{Kubernetes: "1.37", Objects: []map[string]any{{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": "x", "namespace": "shop"},
		"roleRef":  map[string]any{"kind": "ClusterRole", "name": "edit"},
		"subjects": []any{map[string]any{"kind": "User", "name": "alice"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Do(alice, &scenarios.Impersonate{User: "system:serviceaccount:shop:app"}, listPods); p.Mode != Legacy {
		t.Errorf("mode %q: %v", p.Mode, p.Messages)
	}
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		`"x" is not a version`: {Kubernetes: "x"},
		"cannot emulate":       {Kubernetes: "1.37", Binary: "1.36"},
		"came with 1.35":       {Kubernetes: "1.34", Gate: scenarios.GateOn},
		"the gate is on or o":  {Kubernetes: "1.37", Gate: "open"},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// ImpersonationChecks are the least and the greatest number of checks that
// impersonation itself makes.
func (p Prediction) ImpersonationChecks() (least, greatest int) {
	all, _ := p.Sequences()
	for i, seq := range all {
		n := 0
		for _, r := range seq {
			if r.Mode != "" {
				n++
			}
		}
		if i == 0 {
			least = n
		}
		least, greatest = min(least, n), max(greatest, n)
	}
	return least, greatest
}
