package scenarios_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

type resource = authorizationv1.ResourceAttributes

// TestCovers follows RBAC's own rules: VerbMatches, APIGroupMatches,
// ResourceMatches, ResourceNameMatches, NonResourceURLMatches.
func TestCovers(t *testing.T) {
	list := func(s ...string) []string { return s }
	base := func(change func(*scenarios.Grant)) scenarios.Grant {
		g := scenarios.Grant{Subject: scenarios.Subject{User: "bob"}, Verbs: list("get"), APIGroups: list(""), Resources: list("pods")}
		change(&g)
		return g
	}
	same := func(*scenarios.Grant) {}
	pod := resource{Verb: "get", Resource: "pods", Namespace: "ns", Name: "web"}
	with := func(change func(*resource)) resource { r := pod; change(&r); return r }
	for _, c := range []struct {
		name  string
		grant scenarios.Grant
		asked resource
		want  bool
	}{
		{"the same", base(same), pod, true},
		{"another verb", base(same), with(func(r *resource) { r.Verb = "list" }), false},
		{"any verb", base(func(g *scenarios.Grant) { g.Verbs = list("*") }), with(func(r *resource) { r.Verb = "impersonate-on:user-info:get" }), true},
		{"no partial wildcard in verbs", base(func(g *scenarios.Grant) { g.Verbs = list("impersonate-on:user-info:*") }), with(func(r *resource) { r.Verb = "impersonate-on:user-info:get" }), false},
		{"another group", base(same), with(func(r *resource) { r.Group = "apps" }), false},
		{"any group", base(func(g *scenarios.Grant) { g.APIGroups = list("*") }), with(func(r *resource) { r.Group = "apps" }), true},
		{"no groups", base(func(g *scenarios.Grant) { g.APIGroups = nil }), pod, false},
		{"a subresource is another resource", base(same), with(func(r *resource) { r.Subresource = "exec" }), false},
		{"the subresource", base(func(g *scenarios.Grant) { g.Resources = list("pods/exec") }), with(func(r *resource) { r.Subresource = "exec" }), true},
		{"the resource of a subresource", base(func(g *scenarios.Grant) { g.Resources = list("pods/exec") }), pod, false},
		{"any resource", base(func(g *scenarios.Grant) { g.Resources = list("*") }), with(func(r *resource) { r.Subresource = "exec" }), true},
		{"a subresource of any resource", base(func(g *scenarios.Grant) { g.Resources = list("*/exec") }), with(func(r *resource) { r.Subresource = "exec" }), true},
		{"another subresource of any resource", base(func(g *scenarios.Grant) { g.Resources = list("*/exec") }), with(func(r *resource) { r.Subresource = "log" }), false},
		{"no resource without subresource", base(func(g *scenarios.Grant) { g.Resources = list("*/exec") }), pod, false},
		{"pods/* is nothing special", base(func(g *scenarios.Grant) { g.Resources = list("pods/*") }), with(func(r *resource) { r.Subresource = "exec" }), false},
		{"an extra key with a slash", base(func(g *scenarios.Grant) { g.Resources = list("userextras/acme.com/project") }), with(func(r *resource) {
			r.Resource = "userextras"
			r.Subresource = "acme.com/project"
		}), true},
		{"the name", base(func(g *scenarios.Grant) { g.Names = list("db", "web") }), pod, true},
		{"another name", base(func(g *scenarios.Grant) { g.Names = list("db") }), pod, false},
		{"names and no name", base(func(g *scenarios.Grant) { g.Names = list("web") }), with(func(r *resource) { r.Name = "" }), false},
		{"a name that is a star is no wildcard", base(func(g *scenarios.Grant) { g.Names = list("*") }), pod, false},
		{"but itself", base(func(g *scenarios.Grant) { g.Names = list("*") }), with(func(r *resource) { r.Name = "*" }), true},
		{"the namespace", base(func(g *scenarios.Grant) { g.Namespace = "ns" }), pod, true},
		{"another namespace", base(func(g *scenarios.Grant) { g.Namespace = "other" }), pod, false},
		{"a namespace and cluster scope", base(func(g *scenarios.Grant) { g.Namespace = "ns" }), with(func(r *resource) { r.Namespace = "" }), false},
		{"cluster scope", base(same), with(func(r *resource) { r.Namespace = "" }), true},
		{"another user", base(func(g *scenarios.Grant) { g.Subject.User = "alice" }), pod, false},
		{"a group", base(func(g *scenarios.Grant) { g.Subject = scenarios.Subject{Group: "crew"} }), pod, true},
		{"another group of users", base(func(g *scenarios.Grant) { g.Subject = scenarios.Subject{Group: "staff"} }), pod, false},
		{"nobody", base(func(g *scenarios.Grant) { g.Subject = scenarios.Subject{} }), pod, false},
		{"a path", base(func(g *scenarios.Grant) { g.NonResourceURLs, g.APIGroups, g.Resources = list("*"), nil, nil }), pod, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := authorizationv1.SubjectAccessReviewSpec{User: "bob", Groups: []string{"crew"}, ResourceAttributes: &c.asked}
			if got := c.grant.Covers(spec); got != c.want {
				t.Errorf("Covers = %v", got)
			}
			if got := scenarios.Covered([]scenarios.Grant{{}, c.grant}, spec); got != c.want {
				t.Errorf("Covered = %v", got)
			}
		})
	}
	if base(same).Covers(authorizationv1.SubjectAccessReviewSpec{User: "bob"}) {
		t.Error("a review of nothing is covered")
	}
}

func TestCoversPaths(t *testing.T) {
	for _, c := range []struct {
		url, path string
		want      bool
	}{
		{"/version", "/version", true}, {"/version", "/version/", false}, {"/version", "/vers", false},
		{"*", "/anything", true}, {"/healthz*", "/healthz/ping", true}, {"/healthz*", "/health", false},
		{"/healthz/*", "/healthz", false}, {"/healthz/*", "/healthz/", true}, {"/a*b", "/axb", false},
	} {
		g := scenarios.Grant{Subject: scenarios.Subject{User: "bob"}, Verbs: []string{"get"}, NonResourceURLs: []string{c.url}}
		spec := authorizationv1.SubjectAccessReviewSpec{
			User:                  "bob",
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: c.path},
		}
		if got := g.Covers(spec); got != c.want {
			t.Errorf("%s covers %s: %v", c.url, c.path, got)
		}
		g.Namespace = "ns"
		if g.Covers(spec) {
			t.Errorf("%s in a namespace covers %s", c.url, c.path)
		}
	}
}

func TestRulesFromManifests(t *testing.T) {
	const text = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: both}
rules:
- {verbs: [get], nonResourceURLs: [/version], apiGroups: [""], resources: [pods], resourceNames: [web]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: both, namespace: ns1}
rules: [{verbs: [list], resources: [pods, pod/exec]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: b, namespace: dropped}
roleRef: {kind: ClusterRole, name: both}
subjects: [{kind: User, name: bob}, {kind: Group, name: crew}, {kind: ServiceAccount, namespace: sans, name: sa}, {kind: ServiceAccount, name: lost}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: ns1}
roleRef: {kind: Role, name: both}
subjects: [{kind: ServiceAccount, name: sa}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: c, namespace: ns2}
roleRef: {kind: ClusterRole, name: both}
subjects: [{kind: User, name: carol}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: elsewhere, namespace: ns2}
roleRef: {kind: Role, name: both}
subjects: [{kind: User, name: dave}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: admin}
roleRef: {kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, name: eve}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: both}
`
	path := func(s scenarios.Subject) scenarios.Grant {
		return scenarios.Grant{Subject: s, Verbs: []string{"get"}, NonResourceURLs: []string{"/version"}}
	}
	pods := func(s scenarios.Subject, ns string) scenarios.Grant {
		return scenarios.Grant{
			Subject:   s,
			Verbs:     []string{"get"},
			APIGroups: []string{""},
			Resources: []string{"pods"},
			Names:     []string{"web"},
			Namespace: ns,
		}
	}
	bob := scenarios.Subject{User: "bob"}
	crew := scenarios.Subject{Group: "crew"}
	sa := scenarios.Subject{User: "system:serviceaccount:sans:sa"}
	want := []scenarios.Grant{
		path(bob), path(crew), path(sa), pods(bob, ""), pods(crew, ""), pods(sa, ""),
		{Subject: scenarios.Subject{User: "system:serviceaccount:ns1:sa"}, Verbs: []string{"list"}, Resources: []string{"pods", "pod/exec"}, Namespace: "ns1"},
		pods(scenarios.Subject{User: "carol"}, "ns2"),
	}
	if diff := cmp.Diff(want, scenarios.RulesFromManifests(decodeAll(t, text))); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
}

// TestDocumentedExamples checks what the examples of the reference page grant, including their mistakes.
func TestDocumentedExamples(t *testing.T) {
	const controller, deputy = "system:serviceaccount:default:my-controller", "system:serviceaccount:default:deputy-controller"
	const authn = "authentication.k8s.io"
	for _, c := range []struct {
		name, user string
		files      []string
		asked      resource
		want       bool
	}{
		{"the user", controller, []string{"user-identity", "user-list-watch-pods"}, resource{Verb: "impersonate:user-info", Group: authn, Resource: "users", Name: "jane.doe@example.com"}, true},
		{"another user", controller, []string{"user-identity", "user-list-watch-pods"}, resource{Verb: "impersonate:user-info", Group: authn, Resource: "users", Name: "bob"}, false},
		{"the action", controller, []string{"user-identity", "user-list-watch-pods"}, resource{Verb: "impersonate-on:user-info:list", Resource: "pods", Namespace: "default"}, true},
		{"the action elsewhere", controller, []string{"user-identity", "user-list-watch-pods"}, resource{Verb: "impersonate-on:user-info:list", Resource: "pods", Namespace: "production"}, false},
		{"the account, as printed", deputy, []string{"serviceaccount"}, resource{Verb: "impersonate:serviceaccount", Group: authn, Resource: "serviceaccounts", Namespace: "production", Name: "app-sa"}, false},
		{"an account that was not meant", deputy, []string{"serviceaccount"}, resource{Verb: "impersonate:serviceaccount", Group: authn, Resource: "serviceaccounts", Namespace: "default", Name: "app-sa"}, true},
		{"the node", "system:serviceaccount:default:node-impersonator", []string{"node"}, resource{Verb: "impersonate:arbitrary-node", Group: authn, Resource: "nodes", Name: "mynode"}, true},
		{"the associated node", "system:serviceaccount:kube-system:node-agent", []string{"node-agent"}, resource{Verb: "impersonate:associated-node", Group: authn, Resource: "nodes", Name: "*"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var manifests []map[string]any
			for _, name := range c.files {
				raw, err := fs.ReadFile(fixtures.FS, "docs-user-impersonation/"+name+".yaml")
				if err != nil {
					t.Fatal(err)
				}
				manifests = append(manifests, decodeAll(t, string(raw))...)
			}
			spec := authorizationv1.SubjectAccessReviewSpec{User: c.user, ResourceAttributes: &c.asked}
			if got := scenarios.Covered(scenarios.RulesFromManifests(manifests), spec); got != c.want {
				t.Errorf("covered: %v", got)
			}
		})
	}
}

// decodeAll decodes manifests with the decoder that kubectl uses.
func decodeAll(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, doc := range strings.Split(text, "\n---\n") {
		var m map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}
