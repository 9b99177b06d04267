package advice_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// pick returns one item of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// some returns between one and n items of a list.
func some(r *rand.Rand, n int, list ...string) (out []string) {
	for range 1 + r.IntN(n) {
		out = append(out, pick(r, list...))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// generated returns the RBAC of a cluster as a file of manifests: roles and bindings of both kinds, aggregated roles,
// and bindings to roles that do not exist. Its rules are about impersonation, or nearly.
func generated(r *rand.Rand, roles, bindings int) []byte {
	verbs := []string{
		"impersonate",
		"impersonate:user-info",
		"impersonate:serviceaccount",
		"impersonate:arbitrary-node",
		"impersonate:associated-node",
		"*",
		"get",
		"create",
		"impersonate:*",
	}
	for _, mode := range []string{"user-info", "serviceaccount", "arbitrary-node", "associated-node"} {
		verbs = append(verbs, "impersonate-on:"+mode+":get", "impersonate-on:"+mode+":list", "impersonate-on:"+mode+":*")
	}
	var out strings.Builder
	write := func(kind, namespace, name string, fields map[string]any) {
		meta := map[string]any{"name": name}
		if namespace != "" {
			meta["namespace"] = namespace
		}
		if kind == "ClusterRole" && len(name) < 4 && r.IntN(3) == 0 { // of the first hundred
			meta["labels"] = map[string]any{"part-of": pick(r, "a", "b")}
		}
		fields["apiVersion"], fields["kind"], fields["metadata"] = "rbac.authorization.k8s.io/v1", kind, meta
		raw, err := yaml.Marshal(fields)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&out, "%s---\n", raw)
	}
	for i := range roles {
		kind, namespace := "ClusterRole", ""
		if r.IntN(4) == 0 {
			kind, namespace = "Role", pick(r, "n1", "n2")
		}
		var rules []any
		for range 1 + r.IntN(3) {
			mode := pick(r, "user-info", "serviceaccount", "arbitrary-node", "associated-node")
			rule := map[string]any{ // anything
				"verbs":     some(r, 3, verbs...),
				"apiGroups": some(r, 2, "", "authentication.k8s.io", "authentication.k8s.io", "*", "apps"),
				"resources": some(
					r,
					3,
					"users",
					"groups",
					"uids",
					"userextras/scopes",
					"userextras/example.com/team",
					"userextras",
					"userextras/*",
					"*/example.com/team",
					"serviceaccounts",
					"serviceaccounts/token",
					"*/token",
					"nodes",
					"pods",
					"pods/exec",
					"*",
				),
			}
			switch r.IntN(8) {
			case 0, 1: // who is impersonated
				rule = map[string]any{
					"verbs":     []string{"impersonate:" + mode},
					"apiGroups": []string{"authentication.k8s.io"},
					"resources": []string{"users", "groups", "uids", "userextras/example.com/team", "nodes", "serviceaccounts"},
				}
			case 2, 3, 4: // actions
				rule = map[string]any{
					"verbs":     []string{"impersonate-on:" + mode + ":get", "impersonate-on:" + mode + ":list"},
					"apiGroups": []string{"", "apps"},
					"resources": []string{"pods", "nodes", "deployments"},
				}
			case 5:
				rule = map[string]any{
					"verbs":     []string{"impersonate"},
					"apiGroups": []string{"", "authentication.k8s.io"},
					"resources": some(r, 4, "users", "groups", "uids", "serviceaccounts", "userextras/scopes"),
				}
			}
			if r.IntN(4) == 0 {
				rule["resourceNames"] = some(r, 3, "alice", "bob", "g1", "g2", "n1", "sa1", "*", "view", "system:node:n1", "17")
			}
			if kind == "ClusterRole" && r.IntN(8) == 0 {
				rule = map[string]any{"verbs": some(r, 2, verbs...), "nonResourceURLs": some(r, 2, "/version", "/api*", "*")}
			}
			rules = append(rules, rule)
		}
		fields := map[string]any{"rules": rules}
		if kind == "ClusterRole" && i < 20 && r.IntN(6) == 0 { // no more than in a real cluster
			fields["aggregationRule"] = map[string]any{
				"clusterRoleSelectors": []any{map[string]any{"matchLabels": map[string]any{"part-of": pick(r, "a", "b", "nobody")}}},
			}
		}
		write(kind, namespace, fmt.Sprintf("r%d", i), fields)
	}
	for i := range bindings {
		kind, namespace, ref := "ClusterRoleBinding", "", "ClusterRole"
		if r.IntN(3) == 0 {
			kind, namespace, ref = "RoleBinding", pick(r, "n1", "n2"), pick(r, "ClusterRole", "Role")
		}
		subject := pick(
			r,
			map[string]any{"kind": "User", "name": pick(r, "u1", "u2", "alice"), "apiGroup": "rbac.authorization.k8s.io"},
			map[string]any{
				"kind":     "Group",
				"name":     pick(r, "team1", "team2", "system:serviceaccounts:n1"),
				"apiGroup": "rbac.authorization.k8s.io",
			},
			map[string]any{"kind": "ServiceAccount", "name": "agent", "namespace": "n1"},
		)
		write(kind, namespace, fmt.Sprintf("b%d", i), map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": ref, "name": fmt.Sprintf("r%d", r.IntN(roles+2))},
			"subjects": []any{subject},
		})
	}
	return []byte(out.String())
}

// world reads manifests as the command does.
func world(t testing.TB, raw []byte) []map[string]any {
	t.Helper()
	objects, _, err := advice.ReadRBAC("generated.yaml", raw)
	if err != nil {
		t.Fatal(err)
	}
	if objects, err = advice.Aggregated(objects); err != nil {
		t.Fatal(err)
	}
	return objects
}

// inquiry is a request that one user sends on behalf of another.
type inquiry struct {
	who    scenarios.User
	as     scenarios.Impersonate
	action advice.Action
}

func (q inquiry) String() string {
	return fmt.Sprintf("%s %v %v as %+v: %s", q.who.Name, q.who.Groups, q.who.Extra, q.as, q.action)
}

func inquire(r *rand.Rand) (q inquiry) {
	if q.who.Name = pick(r, "u1", "u2", "system:serviceaccount:n1:agent", "system:serviceaccount:n1:agent"); q.who.Name[0] == 'u' {
		q.who.Groups = some(r, 2, "team1", "team2", "other")
	} else {
		q.who.Groups = serviceaccount.MakeGroupNames("n1")
		if r.IntN(2) == 0 {
			q.who.Extra = map[string][]string{serviceaccount.NodeNameKey: {pick(r, "n1", "n2")}}
		}
	}
	q.who = oracle.Authenticated(q.who)
	q.as.User = pick(
		r,
		"alice",
		"bob",
		"carol",
		"system:node:n1",
		"system:node:n1",
		"system:node:Bad_",
		"system:serviceaccount:n1:sa1",
		"system:serviceaccount:n2:sa1",
		"*",
	)
	if r.IntN(3) == 0 {
		q.as.Groups = pick(
			r,
			[]string{"g1"},
			[]string{"g1", "g2"},
			[]string{"g1", "g2", "g3", "g4"},
			[]string{"g1", "g1", "g2", "g2"},
			[]string{"system:masters"},
			[]string{"alice"},
		)
	}
	if r.IntN(5) == 0 {
		q.as.UID = pick(r, "17", "18")
	}
	if r.IntN(4) == 0 {
		q.as.Extra = pick(
			r,
			map[string][]string{"scopes": {"view"}},
			map[string][]string{"example.com/team": {"view"}},
			map[string][]string{"example.com/team": {"a", "b", "c", "view"}},
		)
	}
	q.action = pick(r,
		advice.Action{Verb: "get", Version: "v1", Resource: "pods", Namespace: pick(r, "n1", "n2"), Name: pick(r, "alice", "web")},
		advice.Action{Verb: "list", Version: "v1", Resource: "pods", Namespace: pick(r, "", "n1")},
		advice.Action{Verb: "get", Version: "v1", APIGroup: "apps", Resource: "deployments", Namespace: "n1", Name: "web"},
		advice.Action{Verb: "get", Version: "v1", Resource: "nodes", Name: "n1"},
		advice.Action{Verb: "get", Path: pick(r, "/version", "/apis", "/healthz")})
	return q
}

// answers are the results of Holders. Only they decide who may impersonate whom.
type answers map[oracle.Mode][]scenarios.Grant

func answersOf(holders []advice.Holder) answers {
	a := answers{}
	for _, h := range holders {
		for _, p := range h.Powers {
			if p.Never == "" {
				a[p.Mode] = append(a[p.Mode], p.Grant)
			}
		}
	}
	return a
}

// allowed reports whether the powers of a mode allow a check.
func (a answers) allowed(mode oracle.Mode, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return scenarios.Covered(a[mode], spec)
}

// mode returns the mode by which a question is allowed, or "" if it is not.
func (a answers) mode(q inquiry, gate bool) oracle.Mode {
	for _, m := range oracle.Modes() {
		groups, applies := checksOf(q, m, gate)
		if applies &&
			!slices.ContainsFunc(groups, func(alternatives [][]authorizationv1.SubjectAccessReviewSpec) bool {
				return !slices.ContainsFunc(alternatives, func(all []authorizationv1.SubjectAccessReviewSpec) bool {
					return !slices.ContainsFunc(all, func(spec authorizationv1.SubjectAccessReviewSpec) bool { return !a.allowed(m, spec) })
				})
			}) {
			return m
		}
	}
	return ""
}

// checksOf returns what a mode asks according to the documents. One alternative of each part has to be allowed.
func checksOf(q inquiry, m oracle.Mode, gate bool) (parts [][][]authorizationv1.SubjectAccessReviewSpec, applies bool) {
	spec := func(verb, group, resource, sub, namespace, name string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{
			User:   q.who.Name,
			Groups: q.who.Groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Version: "v1", Resource: resource, Subresource: sub, Namespace: namespace, Name: name,
			},
		}
	}
	one := func(s ...authorizationv1.SubjectAccessReviewSpec) {
		parts = append(parts, [][]authorizationv1.SubjectAccessReviewSpec{s})
	}
	const authn = "authentication.k8s.io"
	verb, group := "impersonate:"+string(m), authn
	node, isNode := strings.CutPrefix(q.as.User, "system:node:")
	isNode = isNode && node != "Bad_"
	namespace, account, isAccount := scenarios.SplitServiceAccount(q.as.User)
	nameOnly := q.as.UID == "" && len(q.as.Groups) == 0 && len(q.as.Extra) == 0
	if m == oracle.Legacy {
		verb, group = "impersonate", ""
	} else {
		if !gate {
			return nil, false
		}
		action := spec(
			"impersonate-on:"+string(m)+":"+q.action.Verb,
			q.action.APIGroup,
			q.action.Resource,
			"",
			q.action.Namespace,
			q.action.Name,
		)
		if q.action.Path != "" {
			action.ResourceAttributes, action.NonResourceAttributes = nil, &authorizationv1.NonResourceAttributes{
				Verb: action.ResourceAttributes.Verb,
				Path: q.action.Path,
			}
		}
		one(action)
	}
	switch m {
	case oracle.AssociatedNode:
		one(spec(verb, group, "nodes", "", "", "*"))
		on := q.who.Extra[serviceaccount.NodeNameKey]
		return parts, isNode && nameOnly && len(on) == 1 && on[0] == node
	case oracle.ArbitraryNode:
		one(spec(verb, group, "nodes", "", "", node))
		return parts, isNode && nameOnly
	case oracle.ServiceAccount:
		one(spec(verb, group, "serviceaccounts", "", namespace, account))
		return parts, isAccount && nameOnly
	case oracle.UserInfo:
		if isNode || isAccount || slices.Contains(q.as.Groups, "system:masters") || q.as.Extra["scopes"] != nil {
			return nil, false
		}
	}
	if isAccount {
		one(spec(verb, group, "serviceaccounts", "", namespace, account))
	} else {
		one(spec(verb, group, "users", "", "", q.as.User))
	}
	if q.as.UID != "" {
		one(spec(verb, authn, "uids", "", "", q.as.UID))
	}
	several := func(resource, sub string, names []string) {
		group := group
		if sub != "" {
			group = authn
		}
		each := seq.Map(names, func(n string) authorizationv1.SubjectAccessReviewSpec { return spec(verb, group, resource, sub, "", n) })
		alternatives := [][]authorizationv1.SubjectAccessReviewSpec{each}
		if len(names) >= 4 && m != oracle.Legacy {
			all := spec(verb, group, resource, sub, "", "*")
			if sub != "" {
				all.ResourceAttributes.Subresource = "*"
			}
			alternatives = append(alternatives, []authorizationv1.SubjectAccessReviewSpec{all})
		}
		if len(names) > 0 {
			parts = append(parts, alternatives)
		}
	}
	several("groups", "", q.as.Groups)
	for key, values := range q.as.Extra {
		several("userextras", key, values)
	}
	return parts, true
}

// TestHoldersAgree compares the results for random RBAC with the model, in 20,000 questions with the gate on and off:
// who may impersonate whom, doing what, by which mode.
func TestHoldersAgree(t *testing.T) {
	modes := map[oracle.Mode]int{}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		objects := world(t, generated(r, 12, 30))
		holders, _ := advice.Holders(objects)
		says := answersOf(holders)
		for _, gate := range []scenarios.Gate{scenarios.GateOff, scenarios.GateOn} {
			var server *oracle.Server
			for range 500 {
				if server == nil { // otherwise it would first try the mode that worked last for a requestor
					var err error
					if server, err = oracle.New(oracle.Config{Kubernetes: "1.37", Gate: gate, Objects: objects}); err != nil {
						t.Fatal(err)
					}
				}
				q := inquire(r)
				p := server.Do(q.who, &q.as, oracle.Request{Attributes: oracle.Attributes{
					Verb: q.action.Verb, APIGroup: q.action.APIGroup, Version: q.action.Version, Resource: q.action.Resource,
					Namespace: q.action.Namespace, Name: q.action.Name, Path: q.action.Path, ResourceRequest: q.action.Path == "",
				}})
				if got := says.mode(q, gate == scenarios.GateOn); got != p.Mode {
					t.Fatalf("seed %d, gate %s: %s: the holders say %q, the model %q (%v)", seed, gate, q, got, p.Mode, p.Messages)
				}
				if modes[p.Mode]++; p.Mode != "" {
					server = nil
				}
			}
		}
	}
	for _, m := range append(oracle.Modes(), "") {
		if modes[m] < 20 {
			t.Errorf("only %d questions were answered by mode %q: %v", modes[m], m, modes)
		}
	}
}

// TestDangling checks that exactly the bindings to roles that do not exist are named.
func TestDangling(t *testing.T) {
	const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: %s
metadata: {name: b, namespace: %q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: n1}
rules: [{apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: c}
rules: [{apiGroups: [""], resources: [users], verbs: [impersonate]}]
`
	for _, test := range []struct {
		kind, namespace, refKind, refName string
		want                              []advice.Dangling
	}{
		{kind: "ClusterRoleBinding", refKind: "ClusterRole", refName: "c"},
		{kind: "RoleBinding", namespace: "n1", refKind: "Role", refName: "r"},
		{kind: "RoleBinding", namespace: "n1", refKind: "ClusterRole", refName: "c"},
		{"RoleBinding", "n2", "Role", "r", []advice.Dangling{{Binding: "RoleBinding n2/b", Role: "Role r"}}},
		{"RoleBinding", "n1", "Role", "c", []advice.Dangling{{Binding: "RoleBinding n1/b", Role: "Role c"}}},
		{"ClusterRoleBinding", "", "ClusterRole", "r", []advice.Dangling{{Binding: "ClusterRoleBinding b", Role: "ClusterRole r"}}},
		{"ClusterRoleBinding", "", "ClusterRole", "system:node", []advice.Dangling{{Binding: "ClusterRoleBinding b", Role: "ClusterRole system:node", BuiltIn: true}}},
	} {
		_, got := advice.Holders(world(t, fmt.Appendf(nil, binding, test.kind, test.namespace, test.refKind, test.refName)))
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

// BenchmarkHolders computes who may impersonate in a cluster of 10,000 bindings, beginning with its manifests. On a
// machine that others use too, processor time says more than elapsed time.
func BenchmarkHolders(b *testing.B) {
	raw := generated(rand.New(rand.NewPCG(1, 1)), 2_000, 10_000)
	begun := processorTime(b)
	for b.Loop() {
		holders, _ := advice.Holders(world(b, raw))
		b.ReportMetric(float64(len(holders)), "holders")
	}
	b.ReportMetric((processorTime(b)-begun).Seconds()/float64(b.N), "cpu-s/op")
}

// processorTime returns how much processor time this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// FuzzReadRBAC checks that no file makes the reader panic, and that an error names the file and a line of it.
func FuzzReadRBAC(f *testing.F) {
	f.Add(generated(rand.New(rand.NewPCG(1, 1)), 3, 3))
	f.Add([]byte("kind: List\nitems: [{kind: Role}]\n---\n{"))
	f.Add([]byte(`{"kind":"ClusterRoleList","apiVersion":"rbac.authorization.k8s.io/v1","items":[{"metadata":{"name":"a"}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		objects, _, err := advice.ReadRBAC("f.yaml", raw)
		if err != nil {
			var line int
			_, scan := fmt.Sscanf(err.Error(), "f.yaml:%d: ", &line)
			if scan != nil || line < 1 || line > strings.Count(string(raw), "\n")+2 {
				t.Errorf("%q", err)
			}
			return
		}
		if objects, err = advice.Aggregated(objects); err == nil {
			advice.Holders(objects)
		}
	})
}
