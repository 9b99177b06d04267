package policy

import "github.com/authzconf/authzconf/scenarios"

// Probe are identities with grants that the scenarios do not have: each is granted one thing, so that whatever else
// it gets was given by mistake.
type Probe struct {
	// Legacy may impersonate Target in the legacy way and no other; Constrained may do it in mode user-info and no
	// other.
	Legacy, Constrained string
	// Reader may get, list and watch pods in Namespace; Wide may get pods in all.
	Reader, Wide string
	// Named may get the config map Object in Namespace.
	Named string
	// Sub may create pods/exec and not pods; Any may get the status of anything.
	Sub, Any string
	// Opaque may use the verb list:labels of KEP-3617; Granular has list too.
	Opaque, Granular string
	// Star may get the node that is named "*", as the check of associated-node asks it.
	Star string
	// Literal may impersonate the group named "*".
	Literal string
	// Member is in Group, which may list services; Outsider is not.
	Member, Outsider, Group string
	// Path may get /probe and what begins with /probe/sub/.
	Path string
	// All may do anything with anything in API group Suite.
	All, Suite string
	// Target is impersonated; Namespace, Other and Object are where and what.
	Target, Namespace, Other, Object string
}

// newProbe makes the names.
func newProbe(seed int64) Probe {
	suffix := scenarios.Suffix(seed, "certify", "probe")
	name := func(s string) string { return s + "-" + suffix }
	return Probe{
		Legacy: name("legacy"), Constrained: name("constrained"), Reader: name("reader"), Wide: name("wide"),
		Named: name("named"), Sub: name("sub"), Any: name("any"), Opaque: name("opaque"), Granular: name("granular"),
		Star: "system:serviceaccount:" + name("probe") + ":" + name("agent"), Literal: name("literal"),
		Member: name("member"), Outsider: name("outsider"), Group: name("group"), Path: name("path"),
		All: name("all"), Suite: suffix + ".probe.authzconf.dev",
		Target: name("target"), Namespace: name("probe"), Other: name("other"),
		// As long as a name may be: what cuts names takes another for this one.
		Object: longName(suffix),
	}
}

// longName is a name of 253 characters.
func longName(suffix string) string {
	out := suffix
	for len(out) < 253-len(suffix)-1 {
		out += "a"
	}
	return out + "-" + suffix
}

// Verbs of KEP-3617: opaque strings, which no other verb implies.
var Verbs3617 = []string{"granular", "granular:labels", "granular:label(example.com)"}

// grants are those of the probes.
func (p Probe) grants() []scenarios.Grant {
	const authn = "authentication.k8s.io"
	user := func(name string, verbs []string, groups, resources []string) scenarios.Grant {
		return scenarios.Grant{Subject: scenarios.Subject{User: name}, Verbs: verbs, APIGroups: groups, Resources: resources}
	}
	core, one := []string{""}, func(s string) []string { return []string{s} }
	in := func(g scenarios.Grant, namespace string, names ...string) scenarios.Grant {
		g.Namespace, g.Names = namespace, names
		return g
	}
	read := []string{"get", "list", "watch"}
	out := []scenarios.Grant{
		in(user(p.Legacy, one("impersonate"), core, one("users")), "", p.Target),
		in(user(p.Legacy, one("impersonate"), one(authn), one("users")), "", p.Target),
		in(user(p.Constrained, one("impersonate:user-info"), one(authn), one("users")), "", p.Target),
		in(user(p.Constrained, one("impersonate:user-info"), core, one("users")), "", p.Target),
		in(user(p.Constrained, one("impersonate-on:user-info:list"), core, one("pods")), p.Namespace),
		in(user(p.Reader, read, core, one("pods")), p.Namespace),
		in(user(p.Wide, one("get"), core, one("pods")), ""),
		in(user(p.Named, one("get"), core, one("configmaps")), p.Namespace, p.Object),
		in(user(p.Sub, one("create"), core, one("pods/exec")), p.Namespace),
		in(user(p.Any, one("get"), core, one("*/status")), p.Namespace),
		in(user(p.Opaque, one(Verbs3617[1]), core, one("pods")), p.Namespace),
		in(user(p.Granular, []string{"list", Verbs3617[0], Verbs3617[2]}, core, one("pods")), p.Namespace),
		in(user(p.Star, one("impersonate:associated-node"), one(authn), one("nodes")), "", "*"),
		in(user(p.Star, one("impersonate-on:associated-node:get"), core, one("nodes")), ""),
		in(user(p.Literal, one("impersonate:user-info"), one(authn), one("groups")), "", "*"),
		user(p.All, one("*"), one(p.Suite), one("*")),
		{Subject: scenarios.Subject{User: p.Path}, Verbs: one("get"), NonResourceURLs: []string{"/probe", "/probe/sub/*"}},
	}
	member := in(user("", one("list"), core, one("services")), p.Namespace)
	member.Subject = scenarios.Subject{Group: p.Group}
	return append(out, member)
}
