package deputy

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

const authenticationGroup = "authentication.k8s.io"

// proxyGrants returns the proxy's own grants, by legacy or constrained impersonation, with every action that is tried.
// They cover the given people, or everybody if there are none.
func proxyGrants(people []*Identity, isConstrained bool) []scenarios.Grant {
	var users, groups []string
	for _, p := range people {
		if !p.outOfReach {
			users, groups = append(users, p.Name), append(groups, p.Groups...)
		}
	}
	groups = sets.List(sets.New(groups...))
	group, home := "impersonate", "" // the API group of users and groups
	if isConstrained {
		group, home = "impersonate:user-info", authenticationGroup
	}
	grants := []scenarios.Grant{proxyGrant(group, home, users, "users"), proxyGrant(group, home, groups, "groups")}
	if people == nil { // RBAC cannot grant userextras/*
		grants = append(grants, proxyGrant(group, authenticationGroup, nil, "*"), proxyGrant(group, home, nil, "serviceaccounts"))
	}
	if isConstrained {
		grants = append(grants, actionGrants()...)
	}
	return grants
}

// actionGrants returns the grants of constrained impersonation for what is done on behalf of people.
func actionGrants() []scenarios.Grant {
	actionVerbs := func(verbs ...string) []string {
		return seq.Map(verbs, func(verb string) string { return "impersonate-on:user-info:" + verb })
	}
	proxy := scenarios.Subject{User: proxyName}
	grants := []scenarios.Grant{
		{
			Subject:   proxy,
			Verbs:     actionVerbs("create"),
			APIGroups: []string{"authorization.k8s.io"},
			Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
		},
		{Subject: proxy, Verbs: actionVerbs("get"), NonResourceURLs: []string{"/api", "/apis", "/version", "/debug/pprof"}},
	}
	for _, k := range kinds {
		grants = append(grants,
			scenarios.Grant{
				Subject:   proxy,
				Verbs:     actionVerbs(sortedVerbs()...),
				APIGroups: []string{k.group},
				Resources: []string{k.fullResource()},
			},
		)
	}
	return grants
}

// proxyGrant returns a grant to the proxy identity.
func proxyGrant(verb, apiGroup string, names []string, resource string) scenarios.Grant {
	return scenarios.Grant{
		Subject:   scenarios.Subject{User: proxyName},
		Verbs:     []string{verb},
		APIGroups: []string{apiGroup},
		Resources: []string{resource},
		Names:     names,
	}
}
