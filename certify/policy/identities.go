package policy

import (
	"github.com/authzconf/authzconf/scenarios"
)

// Identities are users and groups with grants that the scenarios and the cases do not have, and the names that these
// grants are about. Each is granted one thing, so that anything else that it may do was given by mistake. The functions
// in certify/probes.go ask about them.
type Identities struct {
	// Legacy may impersonate Target only in the legacy way, and Constrained only in mode user-info.
	Legacy, Constrained string
	// Reader may get, list and watch pods in Namespace. Wide may get pods in all namespaces.
	Reader, Wide string
	// Star may get the node named "*", which is what the check of associated-node asks.
	Star string
	// Member is in Group, which may list services. Outsider is not in it.
	Member, Outsider, Group string
	// Target is the user who is impersonated. Namespace and Other are the namespaces in which this happens.
	Target, Namespace, Other string
}

// newIdentities returns the identities, with names that are made from a seed.
func newIdentities(seed int64) Identities {
	suffix := scenarios.Suffix(seed, "certify", "probe")
	name := func(s string) string { return s + "-" + suffix }
	return Identities{
		Legacy: name("legacy"), Constrained: name("constrained"), Reader: name("reader"), Wide: name("wide"),
		Star:   "system:serviceaccount:" + name("fleet") + ":" + name("agent"),
		Member: name("member"), Outsider: name("outsider"), Group: name("group"),
		Target: name("target"), Namespace: name("home"), Other: name("other"),
	}
}

// grants returns what is granted to the identities.
func (i Identities) grants() []scenarios.Grant {
	const authn = "authentication.k8s.io"
	users, services := object{Resource: "users"}, newGrant("", "list", object{Resource: "services"}, i.Namespace)
	services.Subject = scenarios.Subject{Group: i.Group}
	read := newGrant(i.Reader, "get", pods, i.Namespace)
	read.Verbs = []string{"get", "list", "watch"}
	return []scenarios.Grant{
		newGrant(i.Legacy, "impersonate", users, "", i.Target),
		newGrant(i.Legacy, "impersonate", object{Group: authn, Resource: "users"}, "", i.Target),
		newGrant(i.Constrained, "impersonate:user-info", object{Group: authn, Resource: "users"}, "", i.Target),
		newGrant(i.Constrained, "impersonate:user-info", users, "", i.Target),
		newGrant(i.Constrained, "impersonate-on:user-info:list", pods, i.Namespace),
		read,
		newGrant(i.Wide, "get", pods, ""),
		newGrant(i.Star, "impersonate:associated-node", object{Group: authn, Resource: "nodes"}, "", "*"),
		newGrant(i.Star, "impersonate-on:associated-node:get", object{Resource: "nodes"}, ""),
		services,
	}
}
