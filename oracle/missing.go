package oracle

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// Need is what a mode lacks to succeed.
type Need struct {
	// Mode is empty for the permission of the resulting user to make the request.
	Mode Mode
	// Refused says why the mode cannot succeed whatever is granted.
	Refused string
	// Grants are what is missing, as narrow as the checks are.
	Grants []scenarios.Grant
}

// Missing says what would have to be granted, mode by mode, so that the requestor may impersonate. Modes that do
// not apply are left out. It changes nothing in the server, and looks at no cache.
func (s *Server) Missing(requestor scenarios.User, imp *scenarios.Impersonate, r Request) (needs []Need) {
	wanted, asked := wantedUser(imp, r.Headers)
	if !asked || wanted.Name == "" {
		return nil
	}
	if !s.gate {
		return []Need{s.need(Legacy, gateOffIdentity(requestor).stages(wanted))}
	}
	for _, mode := range Modes() {
		if notApplicable(mode, wanted, requestor) != "" {
			continue
		}
		if mode == Legacy {
			needs = append(needs, s.need(mode, legacyIdentity(requestor).stages(wanted)))
			continue
		}
		shown, action := requestor, r.Attributes
		if mode == AssociatedNode {
			shown = associated(requestor)
		}
		action.Verb = "impersonate-on:" + string(mode) + ":" + action.Verb
		first := stage{runs: [][]question{{{mode, shown, action}}}}
		needs = append(needs, s.need(mode, append([]stage{first}, constrainedIdentity(mode, shown).stages(wanted)...)))
	}
	return needs
}

// need asks all that stages can ask, further than a server would.
func (s *Server) need(mode Mode, stages []stage) Need {
	k, n := asker{Server: s, plain: !s.gate}, Need{Mode: mode}
	for _, st := range stages {
		if len(st.refusals) > 0 {
			n.Refused = st.refusals[0]
			return n
		}
		if st.all != nil && k.ask(*st.all).Allowed() {
			continue
		}
		for _, q := range slices.Concat(st.runs...) {
			if r := k.ask(q); !r.Allowed() {
				n.add(grantFor(r.Spec))
			}
		}
	}
	return n
}

// add joins grants that differ in the name alone.
func (n *Need) add(g scenarios.Grant) {
	for i, h := range n.Grants {
		if len(g.Names) > 0 && len(h.Names) > 0 && h.Namespace == g.Namespace &&
			slices.Equal(h.Verbs, g.Verbs) && slices.Equal(h.APIGroups, g.APIGroups) && slices.Equal(h.Resources, g.Resources) {
			n.Grants[i].Names = slices.Compact(append(h.Names, g.Names...))
			return
		}
	}
	n.Grants = append(n.Grants, g)
}

// grantFor is the narrowest grant that allows a review. The name * of the mode associated-node stands for every node.
func grantFor(spec authorizationv1.SubjectAccessReviewSpec) scenarios.Grant {
	g := scenarios.Grant{Subject: scenarios.Subject{User: spec.User}}
	if n := spec.NonResourceAttributes; n != nil {
		g.Verbs, g.NonResourceURLs = []string{n.Verb}, []string{n.Path}
		return g
	}
	a := spec.ResourceAttributes
	g.Verbs, g.APIGroups, g.Resources, g.Namespace = []string{a.Verb}, []string{a.Group}, []string{scenarios.FullResource(a.Resource, a.Subresource)}, a.Namespace
	if a.Name != "" && a.Name != "*" {
		g.Names = []string{a.Name}
	}
	return g
}

// NearMisses are the grants that would allow a review if they were different in one respect, with that respect:
// what is usually wrong with a rule.
func (s *Server) NearMisses(spec authorizationv1.SubjectAccessReviewSpec) (out []string) {
	a := spec.ResourceAttributes
	if a == nil {
		return nil
	}
	for _, g := range slices.Concat(s.policy.grants, s.grants) {
		if len(g.Resources) == 0 || g.Covers(spec) {
			continue
		}
		for _, try := range []struct {
			change func(*scenarios.Grant)
			what   string
		}{
			{func(g *scenarios.Grant) { g.APIGroups = []string{"*"} }, fmt.Sprintf("its API group is %q, the check is about %q", strings.Join(g.APIGroups, ", "), a.Group)},
			{func(g *scenarios.Grant) { g.Namespace = "" }, fmt.Sprintf("it holds in namespace %q only, the check is %s", g.Namespace, scope(a))},
			{func(g *scenarios.Grant) { g.Names = nil }, namesWhy(g, a)},
			{func(g *scenarios.Grant) { g.Resources = []string{"*"} }, fmt.Sprintf("its resource is %q, the check is about %q", strings.Join(g.Resources, ", "), scenarios.FullResource(a.Resource, a.Subresource))},
			{func(g *scenarios.Grant) { g.Verbs = []string{"*"} }, fmt.Sprintf("its verb is %q, the check is about %q", strings.Join(g.Verbs, ", "), a.Verb)},
		} {
			// A rule about something else altogether is not a near miss: of verbs only those of impersonation are
			// alike.
			if strings.HasPrefix(try.what, "its verb") && !slices.ContainsFunc(g.Verbs, func(v string) bool { return strings.HasPrefix(v, "impersonate") }) {
				continue
			}
			changed := g
			try.change(&changed)
			if changed.Covers(spec) {
				out = append(out, describeGrant(g)+": "+try.what)
				break
			}
		}
	}
	return out
}

func scope(a *authorizationv1.ResourceAttributes) string {
	if a.Namespace == "" {
		return "cluster-wide"
	}
	return fmt.Sprintf("in namespace %q", a.Namespace)
}

func namesWhy(g scenarios.Grant, a *authorizationv1.ResourceAttributes) string {
	names := strings.Join(g.Names, ", ")
	switch a.Name {
	case "":
		return fmt.Sprintf("it is for the name %q only, and this check carries no name", names)
	case "*":
		return fmt.Sprintf("it is for the name %q only, and this check carries the name \"*\" for all of them", names)
	}
	return fmt.Sprintf("it is for the name %q only, not for %q", names, a.Name)
}

// Dangling are the bindings among the objects to roles that are not among them and not built in.
func (s *Server) Dangling() []string {
	return distinct(scenarios.Each(s.policy.dangling, func(r scenarios.BoundRule) string {
		return fmt.Sprintf("%s is bound to %s %q, which is not there", who(r.Subject), scenarios.Text(r.Binding, "roleRef", "kind"), scenarios.Text(r.Binding, "roleRef", "name"))
	}))
}
