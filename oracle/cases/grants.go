package cases

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	authenticationGroup = "authentication.k8s.io"
	actionID            = "action"
	identityID          = "identity"
	legacyID            = "legacy"
)

var constrained = []string{"associated-node", "arbitrary-node", "serviceaccount", "user-info"}

// modes are those that action and identity grants are about.
func (b *builder) modes() []string {
	switch b.level(mode) {
	case "all":
		return constrained
	case "fitting":
		switch {
		case b.is(wanted, "node"):
			return pick(b.rng, constrained[:1], constrained[1:2], constrained[:2])
		case b.is(wanted, "account"):
			return constrained[2:3]
		}
		return constrained[3:]
	}
	return []string{b.level(mode)}
}

// grants gives what the choice says: action checks, identity checks, legacy, and what the wanted user may do.
func (b *builder) grants(steps []scenarios.Request) {
	modes := b.modes()
	for i, r := range steps {
		if i > 0 && (sameAction(r, steps[0]) || b.rng.IntN(4) == 0) {
			continue
		}
		b.action(modes, r, i == 0)
	}
	if !b.is(identity, "none") {
		b.identity(modes, steps)
	}
	if !b.is(legacy, "none") {
		b.person(steps, person{shape: b.level(legacy), verbs: []string{"impersonate"}, id: legacyID})
	}
	b.rights(steps)
}

func sameAction(a, b scenarios.Request) bool {
	return a.Verb == b.Verb && a.Resource == b.Resource && a.Subresource == b.Subresource && a.Path == b.Path && a.APIGroup == b.APIGroup
}

func (b *builder) add(g scenarios.Grant) {
	g.Subject = cmp.Or(g.Subject, b.subject)
	b.s.Grants = append(b.s.Grants, g)
}

func permission(verbs []string, r scenarios.Request) scenarios.Grant {
	if r.Path != "" {
		return scenarios.Grant{Verbs: verbs, NonResourceURLs: []string{r.Path}}
	}
	return scenarios.Grant{Verbs: verbs, APIGroups: []string{r.APIGroup}, Resources: []string{scenarios.FullResource(r.Resource, r.Subresource)}}
}

func (b *builder) action(modes []string, r scenarios.Request, first bool) {
	g := permission(seq.Map(modes, func(m string) string { return "impersonate-on:" + m + ":" + r.Verb }), r)
	if first {
		g.ID = actionID
	}
	switch b.level(action) {
	case "none":
		return
	case "verb-star":
		g.Verbs = []string{"*"}
	case "all-resources":
		if r.Path != "" {
			g.NonResourceURLs = []string{pick(b.rng, "*", "/*", r.Path[:2]+"*")}
		} else {
			g.APIGroups, g.Resources = []string{"*"}, []string{"*"}
			if r.Subresource != "" && b.rng.IntN(2) == 0 {
				g.Resources = []string{"*/" + r.Subresource}
			}
		}
	case "names":
		g.Names = []string{pick(b.rng, thing, thing, "another")}
	case "names-star":
		g.Names = []string{"*"}
	case "namespaced":
		g.Namespace = place
	case "elsewhere":
		g.Namespace = elsewhere
	case "other-verb":
		for i := range g.Verbs {
			g.Verbs[i] = pick(b.rng, "impersonate-on:"+modes[i]+":*", "impersonate-on:"+modes[i]+":bind", "impersonate-on:"+modes[i], r.Verb)
		}
	}
	if r.Path != "" { // paths have neither names nor namespaces
		g.Names, g.Namespace = nil, ""
	}
	b.add(g)
}

func (b *builder) identity(modes []string, steps []scenarios.Request) {
	if b.is(identity, "other-mode") {
		modes = []string{constrained[(slices.Index(constrained, modes[0])+1+b.rng.IntN(3))%4]}
	}
	verbs := seq.Map(modes, func(m string) string { return "impersonate:" + m })
	if b.is(identity, "verb-star") {
		verbs = []string{"*"}
	}
	b.person(steps, person{shape: b.level(identity), verbs: verbs, id: identityID, constrained: true})
}

// person says how the right to be somebody is granted.
type person struct {
	shape       string
	verbs       []string
	id          string
	constrained bool
}

// person grants what identity checks ask about the users of all requests.
func (b *builder) person(steps []scenarios.Request, p person) {
	if p.shape == "everything" {
		b.add(scenarios.Grant{ID: p.id, Verbs: p.verbs, APIGroups: []string{"*"}, Resources: []string{"*"}})
		return
	}
	resources, names := b.identities(steps, p.constrained)
	for i, resource := range slices.Sorted(maps.Keys(resources)) {
		about, _, _ := strings.Cut(resource, "/")
		group := authenticationGroup
		if !p.constrained && about != "uids" && about != "userextras" {
			group = ""
		}
		isName := about == "nodes" || about == "serviceaccounts" || about == "users"
		g := scenarios.Grant{Verbs: p.verbs, APIGroups: []string{group}, Resources: []string{resource}, Names: resources[resource]}
		switch p.shape {
		case "exact":
			if about == "nodes" && b.rng.IntN(2) == 0 {
				g.Names = []string{"*"} // what associated-node asks for
			}
		case "any", "verb-star", "other-mode":
			g.Names = nil
		case "names-star":
			g.Names = []string{"*"}
		case "no-extra":
			g.Names = nil
			if about == "userextras" && i%2 == 0 {
				continue
			}
		case "one-group-missing":
			if about == "groups" && len(g.Names) > 1 {
				g.Names = g.Names[1:]
			}
		case "core-group", "other-group":
			g.APIGroups = []string{pick(b.rng, "", authenticationGroup, "example.com")}
		case "namespaced":
			g.Names = nil
			g.Namespace = "stock"
		}
		if p.shape == "name-only" && !isName || p.shape == "no-name" && isName {
			continue
		}
		if resource == names {
			g.ID = p.id
		}
		b.add(g)
	}
}

// identities are the resources of identity checks, each with its names, and the one that stands for the first user.
func (b *builder) identities(steps []scenarios.Request, constrainedToo bool) (resources map[string][]string, first string) {
	resources = map[string][]string{}
	put := func(resource, name string) { resources[resource] = append(resources[resource], name) }
	for _, r := range steps {
		imp := r.Impersonate
		if imp == nil {
			continue
		}
		resource, name := "users", imp.User
		if node, ok := strings.CutPrefix(name, nodeUser); ok && b.is(wanted, "node") && constrainedToo {
			resource, name = "nodes", node
		}
		if account, ok := strings.CutPrefix(name, accountUser); ok && b.is(wanted, "account") {
			resource, name = "serviceaccounts", account[strings.Index(account, ":")+1:]
		}
		first = cmp.Or(first, resource)
		put(resource, name)
		if imp.UID != "" {
			put("uids", imp.UID)
		}
		for _, g := range imp.Groups {
			put("groups", g)
		}
		for key, values := range imp.Extra {
			for _, v := range values {
				put("userextras/"+strings.ToLower(key), v)
			}
		}
	}
	for resource, names := range resources {
		resources[resource] = append([]string(nil), sets.List(sets.New(names...).Delete(""))...)
	}
	return resources, first
}

func (b *builder) rights(steps []scenarios.Request) {
	r := steps[0]
	var user, group string
	if r.Impersonate == nil {
		user = b.s.Requestors[r.By].User
	} else {
		user = r.Impersonate.User
		if i := slices.Index(r.Impersonate.Groups, "staff"); i >= 0 {
			group = "staff"
		}
	}
	g := permission([]string{r.Verb}, r)
	g.Subject.User = user
	switch b.level(rights) {
	case "none":
		return
	case "group":
		if group != "" {
			g.Subject = scenarios.Subject{Group: group}
		}
	case "everything":
		g.Verbs = []string{"*"}
		if r.Path != "" {
			g.NonResourceURLs = []string{"*"}
		} else {
			g.APIGroups, g.Resources = []string{"*"}, []string{"*"}
		}
	}
	if g.Subject.User == "" && g.Subject.Group == "" {
		return // nobody is wanted
	}
	b.add(g)
}
