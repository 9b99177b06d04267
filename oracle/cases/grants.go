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

// modes returns the modes that action and identity grants are about.
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

// grants adds what the choice says: action checks, identity checks, legacy, and what the wanted user may do.
func (b *builder) grants(steps []scenarios.Request) {
	modes := b.modes()
	for i, r := range steps {
		if i == 0 || b.needsAction(r, steps[0]) {
			b.action(modes, r, i == 0)
		}
	}
	if !b.is(identity, "none") {
		b.identity(modes, steps)
	}
	if !b.is(legacy, "none") {
		b.person(steps, person{shape: b.level(legacy), verbs: []string{"impersonate"}, id: legacyID})
	}
	b.rights(steps)
}

// needsAction reports whether a later request gets a grant of its action: most of those do that differ from the first.
func (b *builder) needsAction(r, first scenarios.Request) bool {
	return !sameAction(r, first) && b.rng.IntN(4) > 0
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
	return scenarios.Grant{
		Verbs:     verbs,
		APIGroups: []string{r.APIGroup},
		Resources: []string{scenarios.FullResource(r.Resource, r.Subresource)},
	}
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
			g.Verbs[i] = pick(
				b.rng,
				"impersonate-on:"+modes[i]+":*",
				"impersonate-on:"+modes[i]+":bind",
				"impersonate-on:"+modes[i],
				r.Verb,
			)
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

// person is how the right to be somebody is granted.
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
	resources, first := b.identities(steps, p.constrained)
	for i, resource := range slices.Sorted(maps.Keys(resources)) {
		base, _, _ := strings.Cut(resource, "/")
		if p.leavesOut(base, i) {
			continue
		}
		g := scenarios.Grant{Verbs: p.verbs, APIGroups: []string{p.group(base)}, Resources: []string{resource}, Names: resources[resource]}
		b.shapeGrant(&g, p.shape, base)
		if resource == first {
			g.ID = p.id
		}
		b.add(g)
	}
}

// leavesOut reports whether the shape has no grant about a resource, which is the i-th.
func (p person) leavesOut(base string, i int) bool {
	isName := base == "nodes" || base == "serviceaccounts" || base == "users"
	switch p.shape {
	case "name-only":
		return !isName
	case "no-name":
		return isName
	case "no-extra":
		return base == "userextras" && i%2 == 0
	}
	return false
}

// group returns the API group of a resource that identity checks are about.
func (p person) group(base string) string {
	if p.constrained || base == "uids" || base == "userextras" {
		return authenticationGroup
	}
	return ""
}

// shapeGrant makes a grant, which is exact, wider, narrower or another one.
func (b *builder) shapeGrant(g *scenarios.Grant, shape, base string) {
	switch shape {
	case "exact":
		if base == "nodes" && b.rng.IntN(2) == 0 {
			g.Names = []string{"*"} // what associated-node asks for
		}
	case "any", "verb-star", "other-mode", "no-extra":
		g.Names = nil
	case "names-star":
		g.Names = []string{"*"}
	case "one-group-missing":
		if base == "groups" && len(g.Names) > 1 {
			g.Names = g.Names[1:]
		}
	case "core-group", "other-group":
		g.APIGroups = []string{pick(b.rng, "", authenticationGroup, "example.com")}
	case "namespaced":
		g.Names = nil
		g.Namespace = "stock"
	}
}

// checkedNames are the resources of identity checks, each with its names.
type checkedNames map[string][]string

func (c checkedNames) add(resource string, names ...string) {
	if len(names) > 0 {
		c[resource] = append(c[resource], names...)
	}
}

// identities returns the resources of the identity checks of all requests, each with its names, and the resource that
// stands for the first user.
func (b *builder) identities(steps []scenarios.Request, constrainedToo bool) (resources checkedNames, first string) {
	resources = checkedNames{}
	for _, r := range steps {
		imp := r.Impersonate
		if imp == nil {
			continue
		}
		resource, name := b.userResource(imp.User, constrainedToo)
		first = cmp.Or(first, resource)
		resources.add(resource, name)
		if imp.UID != "" {
			resources.add("uids", imp.UID)
		}
		resources.add("groups", imp.Groups...)
		for key, values := range imp.Extra {
			resources.add("userextras/"+strings.ToLower(key), values...)
		}
	}
	for resource, names := range resources {
		resources[resource] = append([]string(nil), sets.List(sets.New(names...).Delete(""))...)
	}
	return resources, first
}

// userResource returns the resource of identity checks, with the name in it, that stands for a user.
func (b *builder) userResource(user string, constrainedToo bool) (resource, name string) {
	if node, isNode := strings.CutPrefix(user, nodeUser); isNode && b.is(wanted, "node") && constrainedToo {
		return "nodes", node
	}
	if account, isAccount := strings.CutPrefix(user, accountUser); isAccount && b.is(wanted, "account") {
		return "serviceaccounts", account[strings.Index(account, ":")+1:]
	}
	return "users", user
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
