package advice_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/advice"
)

const present = `
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: bridge}
  rules:
  - {apiGroups: [""], resources: [users, groups], verbs: [impersonate]}
  - {apiGroups: [authentication.k8s.io], resources: [userextras/scopes], verbs: [impersonate]}
  - {apiGroups: [""], resources: [pods], verbs: [get]}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: everything}
  rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: bots, namespace: ci}
  rules: [{apiGroups: [""], resources: [serviceaccounts], resourceNames: [bot], verbs: [impersonate]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: bridge}
  roleRef: {kind: ClusterRole, name: bridge}
  subjects: [{kind: User, name: d}, {kind: Group, name: helpers}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: root}
  roleRef: {kind: ClusterRole, name: everything}
  subjects: [{kind: User, name: root}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: bots, namespace: ci}
  roleRef: {kind: Role, name: bots}
  subjects: [{kind: User, name: nobody-seen}]
`

func TestLegacy(t *testing.T) {
	var objects []map[string]any
	if err := yaml.Unmarshal([]byte(present), &objects); err != nil {
		t.Fatal(err)
	}
	scopes := user("alice")
	scopes.Extra = map[string]authenticationv1.ExtraValue{"scopes": {"view"}}
	plain := event("d", "get", "/version", user("alice"), "")
	kept := event("e", "get", "/version", scopes, "")
	kept.User.Groups = []string{"helpers"}
	for _, c := range []struct {
		name   string
		events []*auditv1.Event
		want   []string
	}{
		{"nothing rests on them", []*auditv1.Event{plain}, []string{
			"ClusterRole bridge#1 [users groups] d by ClusterRoleBinding bridge: unneeded=true used=true wildcard=false",
			"ClusterRole bridge#2 [userextras/scopes] d by ClusterRoleBinding bridge: unneeded=true used=true wildcard=false",
			"Role ci/bots#1 [serviceaccounts] nobody-seen by RoleBinding ci/bots: unneeded=true used=false wildcard=false",
			"ClusterRole everything#1 [users groups serviceaccounts uids userextras] root by ClusterRoleBinding root: unneeded=true used=false wildcard=true",
			"ClusterRole bridge#1 [users groups] helpers by ClusterRoleBinding bridge: unneeded=true used=false wildcard=false",
			"ClusterRole bridge#2 [userextras/scopes] helpers by ClusterRoleBinding bridge: unneeded=true used=false wildcard=false",
		}},
		{"what cannot be constrained rests on its group's", []*auditv1.Event{plain, kept}, []string{
			"ClusterRole bridge#1 [users groups] d by ClusterRoleBinding bridge: unneeded=true used=true wildcard=false",
			"ClusterRole bridge#2 [userextras/scopes] d by ClusterRoleBinding bridge: unneeded=true used=true wildcard=false",
			"Role ci/bots#1 [serviceaccounts] nobody-seen by RoleBinding ci/bots: unneeded=true used=false wildcard=false",
			"ClusterRole everything#1 [users groups serviceaccounts uids userextras] root by ClusterRoleBinding root: unneeded=true used=false wildcard=true",
			"ClusterRole bridge#1 [users groups] helpers by ClusterRoleBinding bridge: unneeded=false used=true wildcard=false",
			"ClusterRole bridge#2 [userextras/scopes] helpers by ClusterRoleBinding bridge: unneeded=false used=true wildcard=false",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, l := range bookOf(t, advice.Options{}, c.events...).Advice().Legacy(objects) {
				got = append(got,
					fmt.Sprintf(
						"%s#%d %v %s by %s: unneeded=%v used=%v wildcard=%v",
						l.Role,
						l.Rule,
						l.Resources,
						l.Subject.User+l.Subject.Group,
						l.Binding,
						len(l.NeededFor) == 0,
						l.Used,
						l.Wildcard,
					),
				)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
