package population

import (
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/scenarios"
)

const authenticationGroup = "authentication.k8s.io"

// Grants are the permissions of a variant's agents, and first what everybody has: to read pods. Impersonated nodes
// and users read as themselves.
func Grants(variant profile.Variant) []scenarios.Grant {
	agents := scenarios.Subject{Group: "system:serviceaccounts:" + space(variant)}
	list := []scenarios.Grant{{
		ID: "read", Subject: scenarios.Subject{Group: "system:authenticated"},
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"},
	}, {
		ID: "ask", Subject: scenarios.Subject{Group: "system:authenticated"}, // as system:basic-user
		Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews"},
	}}
	add := func(id, group string, resources []string, verbs ...string) {
		list = append(list, scenarios.Grant{ID: id, Subject: agents, Verbs: verbs, APIGroups: []string{group}, Resources: resources})
	}
	action := func(mode string) {
		prefix := "impersonate-on:" + mode + ":"
		add(mode+"-action", "", []string{"pods"}, prefix+"get", prefix+"list", prefix+"watch")
		add(mode+"-reviews", "authorization.k8s.io", []string{"selfsubjectaccessreviews"}, prefix+"create")
	}
	for _, grant := range variant.Grants {
		switch grant {
		case profile.GrantAssociated, profile.GrantArbitrary:
			add(grant, authenticationGroup, []string{"nodes"}, "impersonate:"+grant)
			action(grant)
		case profile.GrantAssociatedAction:
			action(profile.GrantAssociated)
		case profile.GrantUserInfo:
			add(grant, authenticationGroup, []string{"users", "groups", "userextras/" + extraKey}, "impersonate:user-info")
			action(grant)
		case profile.GrantLegacy:
			add("legacy", "", []string{"users", "groups"}, "impersonate")
			add("legacy-extra", authenticationGroup, []string{"userextras/" + extraKey}, "impersonate")
		}
	}
	return list
}
