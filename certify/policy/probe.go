package policy

import (
	"github.com/authzconf/authzconf/scenarios"
)

// Probe has identities with grants that the scenarios and the cases do not have. Each is granted one thing, so that
// anything else that it may do was given by mistake. The functions in certify/probes.go ask about them.
type Probe struct {
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

// newProbe returns the identities of the probes, with names that are made from a seed.
func newProbe(seed int64) Probe {
	suffix := scenarios.Suffix(seed, "certify", "probe")
	name := func(s string) string { return s + "-" + suffix }
	return Probe{
		Legacy: name("legacy"), Constrained: name("constrained"), Reader: name("reader"), Wide: name("wide"),
		Star:   "system:serviceaccount:" + name("fleet") + ":" + name("agent"),
		Member: name("member"), Outsider: name("outsider"), Group: name("group"),
		Target: name("target"), Namespace: name("home"), Other: name("other"),
	}
}

// grants returns what is granted to the identities of the probes.
func (p Probe) grants() []scenarios.Grant {
	const authn = "authentication.k8s.io"
	users, services := object{Resource: "users"}, newGrant("", "list", object{Resource: "services"}, p.Namespace)
	services.Subject = scenarios.Subject{Group: p.Group}
	read := newGrant(p.Reader, "get", pods, p.Namespace)
	read.Verbs = []string{"get", "list", "watch"}
	return []scenarios.Grant{
		newGrant(p.Legacy, "impersonate", users, "", p.Target),
		newGrant(p.Legacy, "impersonate", object{Group: authn, Resource: "users"}, "", p.Target),
		newGrant(p.Constrained, "impersonate:user-info", object{Group: authn, Resource: "users"}, "", p.Target),
		newGrant(p.Constrained, "impersonate:user-info", users, "", p.Target),
		newGrant(p.Constrained, "impersonate-on:user-info:list", pods, p.Namespace),
		read,
		newGrant(p.Wide, "get", pods, ""),
		newGrant(p.Star, "impersonate:associated-node", object{Group: authn, Resource: "nodes"}, "", "*"),
		newGrant(p.Star, "impersonate-on:associated-node:get", object{Resource: "nodes"}, ""),
		services,
	}
}
