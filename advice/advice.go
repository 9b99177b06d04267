package advice

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// Advice is what follows from a log.
type Advice struct {
	// Grants are the most constrained permissions that suffice, as neutral grants. Those with equal parts are merged.
	Grants []scenarios.Grant
	// Requestors says for each requestor how much wider its grants are than what was seen.
	Requestors []Requestor
	Kept       []Kept // the impersonations that no constrained mode can serve
	// Redundant are impersonations that a constrained mode can serve, and whose requests state more than they need to.
	Redundant []Redundant
	// Masters are requestors in system:masters with the number of their requests. No authorizer sees them, so no grant
	// is about them.
	Masters map[string]int64
}

// Requestor sums up one requestor. RBAC cannot tie an identity to an action, so whoever may impersonate two users and
// do two things may do both things as both users.
type Requestor struct {
	Name                string
	Identities, Actions int
	// Allowed is how many combinations of identity and action are allowed within each mode, and Seen is how many of
	// them were seen.
	Seen, Allowed int
	Requests      int64 // how many requests there were
}

// Kept is an impersonation that needs legacy grants.
type Kept struct {
	Requestor string
	Groups    []string // all groups that the requestor was seen in
	As        scenarios.Impersonate
	Why       string
	// Instead says by which other request the same user can be impersonated in a constrained mode that the grants
	// allow. It is empty if there is none.
	Instead  string
	Legacy   []scenarios.Grant // the grants that the impersonation needs until it is changed
	Requests int64             // how many requests there were
}

// Redundant is an impersonation with a header that changes nothing, and needs a permission.
type Redundant struct {
	Requestor string
	As        scenarios.Impersonate
	Instead   string // says by which other request the same user can be had
	Requests  int64  // how many requests there were
}

// Advice returns what follows from everything that was seen.
func (s *Summary) Advice() *Advice {
	a := &Advice{Masters: s.masters}
	for _, name := range slices.Sorted(maps.Keys(s.requestors)) {
		r := s.requestors[name]
		sum, grants := r.sumUp()
		if sum.Seen > 0 {
			a.Requestors = append(a.Requestors, sum)
			a.Grants = append(a.Grants, merge(name, grants)...)
		}
		a.Kept = append(a.Kept, r.listKept()...)
		a.Redundant = append(a.Redundant, r.listRedundant()...)
	}
	return a
}

// sumUp returns what the requestor does by constrained modes, and the grants that it needs for that.
func (r *requestor) sumUp() (sum Requestor, grants []scenarios.Grant) {
	type modeAction struct {
		mode   oracle.Mode
		action *Action
	}
	identities, actions, pairs := map[*identity]bool{}, map[modeAction]bool{}, map[pair]bool{}
	sum.Name = r.name
	for _, pair := range r.sorted() {
		p, isServed := pair.served()
		if !isServed {
			continue
		}
		pairs[p] = true
		sum.Requests += r.pairCounts[pair]
		if !identities[p.as] {
			identities[p.as] = true
			grants = append(grants, p.as.grants...)
		}
		if do := (modeAction{p.as.mode, p.action}); !actions[do] {
			actions[do] = true
			grants = append(grants, p.actionGrant(r.name))
		}
	}
	sum.Seen = len(pairs)
	sum.Identities, sum.Actions = len(identities), len(actions)
	identitiesBy := map[oracle.Mode]int{}
	for id := range identities {
		identitiesBy[id.mode]++
	}
	for do := range actions {
		sum.Allowed += identitiesBy[do.mode]
	}
	return sum, grants
}

// listKept returns the impersonations of the requestor that no constrained mode can serve.
func (r *requestor) listKept() (out []Kept) {
	for id, n := range r.countRequests(func(id *identity) bool { return id.mode == "" }) {
		out = append(out,
			Kept{
				Requestor: r.name,
				Groups:    sets.List(r.groups),
				As:        id.as,
				Why:       id.why,
				Instead:   id.instead.String(),
				Legacy:    id.legacy,
				Requests:  n,
			},
		)
	}
	slices.SortFunc(out, func(a, b Kept) int {
		return cmp.Or(
			strings.Compare(a.As.User, b.As.User),
			strings.Compare(a.Why, b.Why),
			cmp.Compare(len(a.As.Groups), len(b.As.Groups)),
			cmp.Compare(a.Requests, b.Requests),
		)
	})
	return out
}

// listRedundant returns the impersonations of the requestor that a constrained mode can serve with one header less.
func (r *requestor) listRedundant() (out []Redundant) {
	isRedundant := func(id *identity) bool { return id.mode != "" && id.instead != nil }
	for id, n := range r.countRequests(isRedundant) {
		out = append(out, Redundant{r.name, id.as, id.instead.String(), n})
	}
	slices.SortFunc(out, func(a, b Redundant) int {
		return cmp.Or(
			strings.Compare(a.As.User, b.As.User),
			slices.Compare(a.As.Groups, b.As.Groups),
			strings.Compare(a.Instead, b.Instead),
			cmp.Compare(a.Requests, b.Requests),
		)
	})
	return out
}

// countRequests returns how many requests were seen as each of the identities that a function selects.
func (r *requestor) countRequests(selects func(*identity) bool) map[*identity]int64 {
	counts := map[*identity]int64{}
	for p, n := range r.pairCounts {
		if selects(p.as) {
			counts[p.as] += n
		}
	}
	return counts
}

// actionGrant returns the narrowest grant for the action check.
func (p pair) actionGrant(requestor string) scenarios.Grant {
	g := scenarios.Grant{Subject: scenarios.Subject{User: requestor}, Verbs: []string{onPrefix + string(p.as.mode) + ":" + p.action.Verb}}
	if p.action.Path != "" {
		g.NonResourceURLs = []string{p.action.Path}
		return g
	}
	g.APIGroups = []string{p.action.APIGroup}
	g.Resources = []string{scenarios.FullResource(p.action.Resource, p.action.Subresource)}
	g.Namespace = p.action.Namespace
	if p.action.Name != "" {
		g.Names = []string{p.action.Name}
	}
	return g
}

// atom is a grant of one verb on one resource or path, without names.
type atom struct{ namespace, verb, group, resource, path string }

// merge merges grants of one requestor without allowing anything more: first names, then verbs, then resources, of
// grants that are otherwise equal. A grant for all names makes grants with names superfluous, and a grant for all
// namespaces makes grants in one namespace superfluous.
func merge(requestor string, grants []scenarios.Grant) (out []scenarios.Grant) {
	names := namesByAtom(grants)
	for a := range names {
		wide := a
		wide.namespace = ""
		inAll, isKnown := names[wide]
		hasAllNames := isKnown && inAll == nil
		if hasAllNames && a.namespace != "" {
			delete(names, a)
		}
	}
	for a, n := range names {
		g := scenarios.Grant{Subject: scenarios.Subject{User: requestor}, Namespace: a.namespace, Verbs: []string{a.verb}}
		if a.path != "" {
			g.NonResourceURLs = []string{a.path}
		} else {
			g.APIGroups, g.Resources, g.Names = []string{a.group}, []string{a.resource}, slices.Sorted(maps.Keys(n))
		}
		out = append(out, g)
	}
	out = join(out, func(g *scenarios.Grant) *[]string { return &g.Verbs })
	out = join(out, func(g *scenarios.Grant) *[]string { return &g.Resources })
	out = join(out, func(g *scenarios.Grant) *[]string { return &g.NonResourceURLs })
	slices.SortFunc(out, func(a, b scenarios.Grant) int { return strings.Compare(grantKey(a), grantKey(b)) })
	return out
}

// namesByAtom returns the names that grants are for, by everything else in them. nil means all names.
func namesByAtom(grants []scenarios.Grant) map[atom]sets.Set[string] {
	names := map[atom]sets.Set[string]{}
	for _, g := range grants {
		a := atom{namespace: g.Namespace, verb: g.Verbs[0]}
		if len(g.NonResourceURLs) > 0 {
			a.path = g.NonResourceURLs[0]
			names[a] = nil
			continue
		}
		a.group, a.resource = g.APIGroups[0], g.Resources[0]
		nameSet, isKnown := names[a]
		hasAllNames := isKnown && nameSet == nil
		switch {
		case len(g.Names) == 0 || hasAllNames:
			names[a] = nil
		case !isKnown:
			names[a] = sets.New(g.Names...)
		default:
			nameSet.Insert(g.Names...)
		}
	}
	return names
}

// join puts grants together that differ in one list alone.
func join(grants []scenarios.Grant, list func(*scenarios.Grant) *[]string) (out []scenarios.Grant) {
	byRest := map[string]int{}
	for _, g := range grants {
		rest := g
		values := *list(&rest)
		*list(&rest) = nil
		if len(values) == 0 {
			out = append(out, g)
			continue
		}
		key := grantKey(rest)
		i, known := byRest[key]
		if !known {
			byRest[key] = len(out)
			out = append(out, g)
			continue
		}
		joined := list(&out[i])
		*joined = append(slices.Clone(*joined), values...)
	}
	for i := range out {
		values := list(&out[i])
		*values = sets.List(sets.New(*values...))
	}
	return out
}

// grantKey orders grants: cluster-wide ones first, identities before actions.
func grantKey(g scenarios.Grant) string {
	actions := "0"
	if len(g.Verbs) > 0 && strings.HasPrefix(g.Verbs[0], onPrefix) {
		actions = "1"
	}
	return strings.Join([]string{
		g.Namespace, actions, strings.Join(g.NonResourceURLs, "\x01"), strings.Join(g.APIGroups, "\x01"), strings.Join(g.Resources, "\x01"),
		strings.Join(g.Verbs, "\x01"), strings.Join(g.Names, "\x01"),
	}, "\x00")
}

func (k Kept) legacyChecks() (out []authorizationv1.SubjectAccessReviewSpec) {
	for _, g := range k.Legacy {
		for _, spec := range g.Examples() {
			spec.Groups = k.Groups
			out = append(out, spec)
		}
	}
	return out
}

const (
	nodePrefix  = "system:node:"
	accountHead = serviceaccount.ServiceAccountUsernamePrefix
)

// actionOf returns what the request of an event was for the action check.
func actionOf(verb, uri string) (Action, error) {
	a, err := readAttributes(verb, uri)
	if err != nil {
		return Action{}, err
	}
	if !a.ResourceRequest {
		return Action{Verb: a.Verb, Path: a.Path}, nil
	}
	return Action{
		Verb:        a.Verb,
		APIGroup:    a.APIGroup,
		Version:     a.Version,
		Resource:    a.Resource,
		Subresource: a.Subresource,
		Namespace:   a.Namespace,
		Name:        a.Name,
	}, nil
}

// requestorOf returns a requestor with only the extra that impersonation looks at: its node, if that is impersonated.
func requestorOf(e *auditv1.Event) scenarios.User {
	who := scenarios.User{Name: e.User.Username, Groups: e.User.Groups}
	if nodes := e.User.Extra[serviceaccount.NodeNameKey]; len(nodes) == 1 && e.ImpersonatedUser.Username == nodePrefix+nodes[0] {
		who.Extra = map[string][]string{serviceaccount.NodeNameKey: nodes}
	}
	return who
}

// headersOf returns what the impersonation headers asked for, as far as that follows from the resulting user. It leaves
// out what the API server adds by itself: a client that asked for exactly that cannot be told from one that did not
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation, mode.go).
func headersOf(e *auditv1.Event) scenarios.Impersonate {
	u := e.ImpersonatedUser
	groups := slices.Clone(u.Groups)
	added := user.AllAuthenticated
	if u.Username == user.Anonymous {
		added = user.AllUnauthenticated
	}
	if n := len(groups); n > 0 && groups[n-1] == added {
		groups = groups[:n-1]
	}
	switch {
	case len(groups) == 0 && isServiceAccount(u.Username): // it would have its own groups if none had been asked for
		groups = []string{added}
	case len(groups) == 0 || followFromName(e, groups):
		groups = nil
	}
	return scenarios.Impersonate{User: u.Username, UID: u.UID, Groups: groups, Extra: scenarios.UserOf("", "", nil, u.Extra).Extra}
}

func isServiceAccount(name string) bool {
	_, _, isAccount := scenarios.SplitServiceAccount(name)
	return isAccount
}

// followFromName reports whether the groups follow from the name: those of a service account, and in a constrained mode
// that of a node. Legacy impersonation gives a node no group, so there the group was asked for.
func followFromName(e *auditv1.Event, groups []string) bool {
	name := e.ImpersonatedUser.Username
	if rest, ok := strings.CutPrefix(name, accountHead); ok {
		namespace, _, _ := strings.Cut(rest, ":")
		return slices.Equal(groups, serviceaccount.MakeGroupNames(namespace))
	}
	isByNodeMode := strings.HasPrefix(name, nodePrefix) && strings.HasSuffix(scenarios.ConstraintOf(e), "-node")
	return isByNodeMode && slices.Equal(groups, []string{user.NodesGroup})
}

func compareActions(a, b Action) int {
	return cmp.Or(
		strings.Compare(a.Path, b.Path), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.APIGroup, b.APIGroup),
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Subresource, b.Subresource),
		strings.Compare(a.Verb, b.Verb), strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version),
		strings.Compare(strconv.FormatBool(a.AnyName), strconv.FormatBool(b.AnyName)),
	)
}
