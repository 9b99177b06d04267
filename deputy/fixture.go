package deputy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/scenarios"
)

// kind is a resource.
type kind struct {
	group, version, resource, sub string
	cluster                       bool
}

var kinds = []kind{
	{"", "v1", "pods", "", false},
	{"", "v1", "pods", "log", false},
	{"", "v1", "configmaps", "", false},
	{"", "v1", "secrets", "", false},
	{"", "v1", "nodes", "", true},
	{"apps", "v1", "deployments", "", false},
	{"apps", "v1", "deployments", "scale", false},
	{"rbac.authorization.k8s.io", "v1", "clusterroles", "", true},
}

func (k kind) full() string { return scenarios.FullResource(k.resource, k.sub) }

// verbs with whether they name an object.
var verbs = map[string]bool{
	"get": true, "list": false, "watch": false, "create": false, "update": true, "patch": true, "delete": true, "deletecollection": false,
}

var objectNames = []string{"web", "db"}

// pair is a question of the pre-flight and the request that it is about.
type pair struct {
	who       *Identity
	verb      string
	kind      kind
	namespace string
	name      string
}

// fixture is what is granted to whom, made from a seed.
type fixture struct {
	people     []*Identity
	namespaces []string
	// grants are those of the people; the proxy's are not among them.
	grants []scenarios.Grant
}

const (
	// peopleCount is how many people there are, every sixth of them out of the proxy's reach.
	peopleCount = 12
	spaceCount  = 4
	grantCount  = 60
)

// somebody are people who do not exist but here.
func somebody() (out []*Identity) {
	for i := range peopleCount {
		who := asserted(fmt.Sprintf("user-%d@corp", i), tierOf(i))
		who.outOfReach = i%6 == 5
		out = append(out, who)
	}
	return out
}

// newFixture generates one for people.
func newFixture(seed int64, people []*Identity) (*fixture, *rand.Rand) {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	f := &fixture{people: people}
	for i := range spaceCount {
		f.namespaces = append(f.namespaces, fmt.Sprintf("team-%d", i))
	}
	for range grantCount {
		f.grants = append(f.grants, f.grant(random))
	}
	return f, random
}

// grant is one at random: to a user or a tier, in a namespace or everywhere, for all names or some.
func (f *fixture) grant(random *rand.Rand) scenarios.Grant {
	who := f.people[random.IntN(len(f.people))]
	g := scenarios.Grant{Subject: scenarios.Subject{User: who.Name}}
	if random.IntN(3) == 0 && len(who.Groups) > 0 {
		g.Subject = scenarios.Subject{Group: who.Groups[0]}
	}
	all := sortedVerbs()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	g.Verbs = all[:1+random.IntN(4)]
	if random.IntN(12) == 0 {
		g.Verbs = []string{"*"}
	}
	k := kinds[random.IntN(len(kinds))]
	g.APIGroups, g.Resources = []string{k.group}, []string{k.full()}
	if random.IntN(2) == 0 && !k.cluster {
		g.Namespace = f.namespaces[random.IntN(len(f.namespaces))]
	}
	if random.IntN(4) == 0 {
		g.Names = []string{objectNames[random.IntN(len(objectNames))]}
	}
	return g
}

func sortedVerbs() []string { return slices.Sorted(maps.Keys(verbs)) }

// pairs are all that there are, in an order at random.
func (f *fixture) pairs(random *rand.Rand) (out []pair) {
	for _, who := range f.people {
		for _, verb := range sortedVerbs() {
			names := []string{""}
			if verbs[verb] {
				names = objectNames
			}
			for _, k := range kinds {
				spaces := f.namespaces
				if k.cluster {
					spaces = []string{""}
				}
				if k.sub != "" && !verbs[verb] {
					continue // a subresource is one of an object
				}
				for _, ns := range spaces {
					for _, name := range names {
						out = append(out, pair{who, verb, k, ns, name})
					}
				}
			}
		}
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// String is the pair for people.
func (p pair) String() string {
	s := fmt.Sprintf("%s: %s %s", p.who.Name, p.verb, p.kind.full())
	if p.name != "" {
		s += " " + p.name
	}
	if p.namespace != "" {
		s += " in " + p.namespace
	}
	return s
}

// attributes are what the pre-flight asks about.
func (p pair) attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb: p.verb, Group: p.kind.group, Version: p.kind.version, Resource: p.kind.resource, Subresource: p.kind.sub, Namespace: p.namespace, Name: p.name,
	}
}

// granted tells whether a grant of the fixture is for the pair: the pre-flight and the request are both compared with
// it.
func (f *fixture) granted(p pair) bool { return p.who.granted(f.grants, p.attributes()) }

// granted tells whether one of the grants lets the person do something.
func (id *Identity) granted(grants []scenarios.Grant, what *authorizationv1.ResourceAttributes) bool {
	return scenarios.Covered(grants, authorizationv1.SubjectAccessReviewSpec{
		User: id.Name, Groups: append([]string{user.AllAuthenticated}, id.Groups...), ResourceAttributes: what,
	})
}

// proxyGrants are the proxy's own grants: for the people in its reach, or for everybody without any, by legacy
// impersonation or by constrained, with every action that is tried.
func proxyGrants(people []*Identity, constrained bool) []scenarios.Grant {
	var users, groups []string
	for _, p := range people {
		if !p.outOfReach {
			users, groups = append(users, p.Name), append(groups, p.Groups...)
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	grant := func(verbs []string, apiGroup string, names []string, resources ...string) scenarios.Grant {
		return scenarios.Grant{Subject: scenarios.Subject{User: proxyName}, Verbs: verbs, APIGroups: []string{apiGroup}, Resources: resources, Names: names}
	}
	const authn = "authentication.k8s.io"
	as, home := []string{"impersonate"}, "" // of which API group users and groups are
	if constrained {
		as, home = []string{"impersonate:user-info"}, authn
	}
	list := []scenarios.Grant{grant(as, home, users, "users"), grant(as, home, groups, "groups")}
	if people == nil { // RBAC has no userextras/*
		list = append(list, grant(as, authn, nil, "*"), grant(as, home, nil, "serviceaccounts"))
	}
	if !constrained {
		return list
	}
	on := func(verbs ...string) []string {
		return scenarios.Each(verbs, func(verb string) string { return "impersonate-on:user-info:" + verb })
	}
	list = append(list, grant(on("create"), "authorization.k8s.io", nil, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
		scenarios.Grant{Subject: scenarios.Subject{User: proxyName}, Verbs: on("get"), NonResourceURLs: []string{"/api", "/apis", "/version"}})
	for _, k := range kinds {
		list = append(list, grant(on(sortedVerbs()...), k.group, nil, k.full()))
	}
	return list
}
