package scenarios_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// granted is a scenario with grants of every shape.
const granted = `description: x
source: {document: KEP-5284, section: x}
level: core
requires: {gate: on}
requestors: {agent: {user: agent}}
grants:
  - {subject: {user: agent}, verbs: [list, watch], apiGroups: [""], resources: [pods], namespace: ns1}
  - {subject: {user: agent}, verbs: [list], apiGroups: [""], resources: [nodes]}
  - {subject: {user: agent}, verbs: ["*"], apiGroups: [apps], resources: [deployments/scale], resourceNames: [web], namespace: ns1}
  - {id: later, subject: {user: agent}, verbs: [list, get], apiGroups: [""], resources: [nodes]}
  - {id: sooner, subject: {group: crew}, verbs: ["*"], apiGroups: ["*"], resources: ["*"]}
  - {subject: {user: "system:serviceaccount:ns1:sa"}, verbs: [get], nonResourceURLs: ["/healthz*"]}
  - {id: shadowed, subject: {user: agent}, verbs: [list], apiGroups: [""], resources: [nodes]}
steps:
  - request: {by: agent, verb: list, resource: nodes}
    expect: {outcome: allowed}
  - grant: later
  - revoke: sooner
  - grant: sooner
  - revoke: later
`

func TestRenderRBAC(t *testing.T) {
	bound, _ := mustLoad(t, fstest.MapFS{"a/x.yaml": file(granted)}, nil).All()[0].Bind("s1")
	objects := scenarios.RenderRBAC(bound)
	if diff := cmp.Diff(scenarios.RenderRBAC(bound), objects); diff != "" {
		t.Errorf("not deterministic:\n%s", diff)
	}
	type summary struct {
		Name, Namespace, Grant string
		InForce, Exclusive     bool
		Rules                  int
		Subject                rbacv1.Subject
		Check                  authorizationv1.SubjectAccessReviewSpec
	}
	var got []summary
	for _, o := range objects {
		s := summary{Name: o.Name, Namespace: o.Namespace, Grant: o.Grant, InForce: o.InForce, Exclusive: o.Exclusive, Check: o.Check}
		var ref rbacv1.RoleRef
		made := o.Objects()
		if role, ok := made[0].(*rbacv1.ClusterRole); ok {
			binding := made[1].(*rbacv1.ClusterRoleBinding)
			s.Rules, s.Subject, ref = len(role.Rules), binding.Subjects[0], binding.RoleRef
		} else {
			binding := made[1].(*rbacv1.RoleBinding)
			s.Rules, s.Subject, ref = len(made[0].(*rbacv1.Role).Rules), binding.Subjects[0], binding.RoleRef
		}
		if (ref.Kind == "Role") != (o.Namespace != "") || ref.Name != o.Name || len(made) != 2 {
			t.Errorf("%s: role reference %+v", o.Name, ref)
		}
		got = append(got, s)
	}
	user := rbacv1.Subject{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "agent-s1"}
	check := func(r resource) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: "agent-s1", ResourceAttributes: &r}
	}
	want := []summary{
		{"authzconf-s1-0", "ns1-s1", "", true, true, 2, user, check(resource{Verb: "list", Resource: "pods", Namespace: "ns1-s1"})},
		{"authzconf-s1-1", "", "", true, false, 1, user, check(resource{Verb: "list", Resource: "nodes"})},
		{"authzconf-s1-2", "", "later", false, true, 1, user, check(resource{Verb: "get", Resource: "nodes"})},
		{"authzconf-s1-3", "", "sooner", true, true, 1, rbacv1.Subject{Kind: "Group", APIGroup: "rbac.authorization.k8s.io", Name: "crew-s1"},
			authorizationv1.SubjectAccessReviewSpec{Groups: []string{"crew-s1"}, ResourceAttributes: &resource{Verb: "get", Resource: "pods"}}},
		{"authzconf-s1-4", "", "", true, true, 1, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ns1-s1", Name: "sa-s1"},
			authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:ns1-s1:sa-s1", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/healthz"}}},
		{"authzconf-s1-5", "", "shadowed", true, false, 1, user, check(resource{Verb: "list", Resource: "nodes"})},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	diff := cmp.Diff([]rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		{Verbs: []string{"*"}, APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, ResourceNames: []string{"web"}},
	}, objects[0].Objects()[0].(*rbacv1.Role).Rules)
	if diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestRenderedMeansTheSame checks, for every embedded scenario, that the
// rendered check is covered by its own grants, and by those only.
func TestRenderedMeansTheSame(t *testing.T) {
	for _, s := range embedded(t).All() {
		bound, _ := s.Bind("abc123")
		for _, o := range scenarios.RenderRBAC(bound) {
			if !scenarios.Covered(o.Grants, o.Check) {
				t.Errorf("%s: %s does not allow its own check %+v", s.ID, o.Name, o.Check)
			}
			if !o.Exclusive && o.Grant != "" {
				t.Errorf("%s: nothing tells whether grant %q is in force: other grants allow all of it", s.ID, o.Grant)
			}
		}
	}
}

func TestRenderUnbound(t *testing.T) {
	s := mustLoad(t, fstest.MapFS{"a/x.yaml": file(granted)}, nil).All()[0]
	if got := scenarios.RenderRBAC(s)[0].Name; got != "authzconf-0" {
		t.Errorf("name %q", got)
	}
}
