package advice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// Holder is a rule of a role that lets a subject impersonate, or get tokens of service accounts, by one binding.
type Holder struct {
	Subject scenarios.Subject `json:"subject"`
	// Role and Binding are written "ClusterRole name" or "RoleBinding namespace/name". Rule is the number of the rule
	// in the role, beginning with 1.
	Role    string `json:"role"`
	Binding string `json:"binding"`
	Rule    int    `json:"rule"`
	// Wildcard means that the rule grants it by the verb *.
	Wildcard bool    `json:"wildcard,omitempty"`
	Powers   []Power `json:"powers"`
	// Instead says what would serve in its place. Least are the grants for that, as far as they follow from roles and
	// bindings alone.
	Instead string            `json:"instead"`
	Least   []scenarios.Grant `json:"least,omitempty"`
}

// Power is what a rule grants for one mode.
type Power struct {
	Mode oracle.Mode `json:"mode,omitempty"` // empty for tokens
	// Grant is the part of the rule that concerns it: checks of the impersonated user, or of the action.
	Grant scenarios.Grant `json:"grant"`
	// Whom are the resources that identity checks are about, with the key of extra after a slash. It is empty for
	// actions.
	Whom []string `json:"whom,omitempty"`
	// GateOff and GateOn report whether it lets anybody impersonate with the gate off and on. Never says why it cannot
	// in any case.
	GateOff bool   `json:"gateOff"`
	GateOn  bool   `json:"gateOn"`
	Never   string `json:"never,omitempty"`
}

// Action reports whether the power is about an action, and not about whom somebody may impersonate.
func (p Power) Action() bool { return p.Mode != "" && len(p.Whom) == 0 && p.Never == "" }

// Dangling is a binding to a role that is not there.
type Dangling struct {
	Binding string `json:"binding"`
	Role    string `json:"role"`
	// BuiltIn means that the role has the name of one that API servers create themselves.
	BuiltIn bool `json:"builtIn,omitempty"`
}

// check is what a mode asks about the impersonated user (k8s.io/apiserver/pkg/endpoints/filters/impersonation,
// mode.go).
type check struct {
	mode      oracle.Mode
	group     string
	resources []string
}

const authentication = "authentication.k8s.io"

var checks = []check{
	{oracle.Legacy, "", []string{"users", "groups", "serviceaccounts"}},
	{oracle.Legacy, authentication, []string{"uids", "userextras"}},
	{oracle.UserInfo, authentication, []string{"users", "groups", "uids", "userextras"}},
	{oracle.ServiceAccount, authentication, []string{"serviceaccounts"}},
	{oracle.ArbitraryNode, authentication, []string{"nodes"}},
	{oracle.AssociatedNode, authentication, []string{"nodes"}},
}

func (c check) verb() string {
	if c.mode == oracle.Legacy {
		return "impersonate"
	}
	return identityPrefix + string(c.mode)
}

const identityPrefix = "impersonate:"

// Holders returns who may impersonate whom, and who may get tokens of service accounts, by the roles and bindings of a
// cluster, for each subject. Aggregated roles must have been put together before. A rule with the verb * about
// something else counts as actions of those who may impersonate somebody.
func Holders(objects []map[string]any) (holders []Holder, dangling []Dangling) {
	rules, unbound := scenarios.BoundRules(objects)
	all := newBound(rules)
	holdersByRule, has := map[ruleKey]Holder{}, powerSet{}
	for _, r := range rules {
		key := ruleKey{label(r.Role), r.Namespace, r.Rule, len(r.NonResourceURLs) > 0}
		h, isKnown := holdersByRule[key]
		if !isKnown {
			h = Holder{
				Subject:  r.Subject,
				Role:     key.role,
				Rule:     r.Rule,
				Wildcard: slices.Contains(r.Verbs, "*"),
				Powers:   findPowers(r.Grant),
			}
			h.complete(all)
			holdersByRule[key] = h
		}
		if len(h.Powers) > 0 {
			h = h.bindTo(r.Subject, label(r.Binding))
			holders = append(holders, h)
		}
		has.add(r.Subject, h.Powers)
	}
	for _, h := range holders {
		has.completeGateOn(h)
	}
	slices.SortStableFunc(holders, func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.Subject.Group, b.Subject.Group), strings.Compare(a.Subject.User, b.Subject.User),
			strings.Compare(a.Binding, b.Binding), strings.Compare(a.Role, b.Role), cmp.Compare(a.Rule, b.Rule))
	})
	return holders, seq.Map(unbound, newDangling)
}

// ruleKey identifies a rule in a role. What a rule grants does not depend on its binding, and there are far fewer rules
// than bindings.
type ruleKey struct {
	role, namespace string
	rule            int
	isForPaths      bool
}

func newDangling(binding map[string]any) Dangling {
	name := scenarios.Text(binding, "roleRef", "name")
	return Dangling{
		Binding: label(binding), Role: scenarios.Text(binding, "roleRef", "kind") + " " + name,
		BuiltIn: strings.HasPrefix(name, "system:") || name == "extension-apiserver-authentication-reader",
	}
}

// bindTo returns the same rule as a binding gives it to a subject.
func (h Holder) bindTo(subject scenarios.Subject, binding string) Holder {
	h.Subject, h.Binding = subject, binding
	h.Powers, h.Least = slices.Clone(h.Powers), slices.Clone(h.Least)
	for i := range h.Powers {
		h.Powers[i].Grant.Subject = subject
	}
	for i := range h.Least {
		h.Least[i].Subject = subject
	}
	return h
}

// powerSet says which subjects may impersonate somebody by a mode, and which may do any action by it.
type powerSet map[powerKey]bool

type powerKey struct {
	scenarios.Subject
	mode   oracle.Mode
	action bool
}

// add adds the powers of a subject that can be used.
func (s powerSet) add(subject scenarios.Subject, powers []Power) {
	for _, p := range powers {
		if p.Never == "" {
			s[powerKey{subject, p.Mode, p.Action()}] = true
		}
	}
}

// completeGateOn sets, for the powers of a holder by constrained modes, whether they let anybody impersonate. A
// permission for an identity is worth nothing without one for an action, and the reverse.
func (s powerSet) completeGateOn(h Holder) {
	for i, p := range h.Powers {
		isConstrained := p.Mode != "" && p.Mode != oracle.Legacy
		if isConstrained && p.Never == "" {
			h.Powers[i].GateOn = s.includes(h.Subject, p.Mode, !p.Action())
		}
	}
}

// includes reports whether a subject has a power, or a group that it is surely in.
func (s powerSet) includes(subject scenarios.Subject, mode oracle.Mode, action bool) bool {
	groups := []string{subject.Group}
	if subject.User != "" {
		groups = []string{user.AllAuthenticated}
	}
	if namespace, _, ok := scenarios.SplitServiceAccount(subject.User); ok {
		groups = append(groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	return s[powerKey{subject, mode, action}] || slices.ContainsFunc(groups, func(g string) bool {
		return s[powerKey{scenarios.Subject{Group: g}, mode, action}]
	})
}

// Idle reports whether a rule with the verb * is about other things and its subject impersonates nobody.
func (h Holder) Idle() bool {
	return !slices.ContainsFunc(h.Powers, func(p Power) bool { return !p.Action() || p.GateOn || !h.Wildcard })
}

// findPowers returns what a rule grants: impersonation, tokens of service accounts, what only looks like impersonation,
// and actions.
func findPowers(g scenarios.Grant) (out []Power) {
	out = findIdentities(g)
	token := g
	token.NonResourceURLs = nil
	token.Verbs, token.APIGroups, token.Resources = []string{"create"}, []string{""}, []string{"serviceaccounts/token"}
	if g.Covers(token.Examples()[0]) {
		out = append(out, Power{Grant: token, Whom: token.Resources, GateOff: true, GateOn: true})
	}
	out = append(out, findUseless(g)...)
	for _, mode := range oracle.Modes() {
		if mode != oracle.Legacy { // which has no actions
			out = append(out, findActions(g, mode)...)
		}
	}
	return out
}

// findUseless returns the parts of a rule that have verbs and resources of impersonation, but let nobody impersonate.
func findUseless(g scenarios.Grant) (out []Power) {
	isIdentityVerb := func(v string) bool { return strings.HasPrefix(v, "impersonate") && !strings.HasPrefix(v, onPrefix) }
	for _, r := range g.Resources {
		part := g
		part.Resources, part.Verbs = []string{r}, seq.Filter(g.Verbs, isIdentityVerb)
		looksUseful := len(part.Verbs) > 0 && isImpersonated(r)
		if looksUseful && len(findIdentities(part)) == 0 {
			out = append(out, Power{Grant: part, Never: explainUseless(part)})
		}
	}
	return out
}

// isImpersonated reports whether a check of some mode is about a resource, whatever the API group.
func isImpersonated(resource string) bool {
	head, _, _ := strings.Cut(resource, "/")
	return slices.ContainsFunc(checks, func(c check) bool { return slices.Contains(c.resources, head) })
}

// findActions returns the actions that a rule allows by a constrained mode, and verbs that only look like such actions.
func findActions(g scenarios.Grant, mode oracle.Mode) (out []Power) {
	action, never := g, g
	action.Verbs, never.Verbs = nil, nil
	for _, v := range g.Verbs {
		switch rest, isOfMode := strings.CutPrefix(v, onPrefix+string(mode)+":"); {
		case v == "*":
			action.Verbs = append(action.Verbs, v)
		case isOfMode && slices.Contains([]string{"", "*"}, rest):
			never.Verbs = append(never.Verbs, v)
		case isOfMode:
			action.Verbs = append(action.Verbs, v)
		}
	}
	if len(action.Verbs) > 0 {
		out = append(out, Power{Mode: mode, Grant: action})
	}
	if len(never.Verbs) > 0 {
		out = append(out, Power{Mode: mode, Grant: never, Never: "there is no wildcard in verbs but * alone"})
	}
	return out
}

// findIdentities returns the powers of a rule about impersonated users, with what the checks of each mode can be about.
func findIdentities(g scenarios.Grant) (out []Power) {
	for _, c := range checks {
		p := Power{Mode: c.mode, Grant: g, GateOff: c.mode == oracle.Legacy, GateOn: c.mode == oracle.Legacy}
		p.Grant.Verbs, p.Grant.APIGroups = []string{c.verb()}, []string{c.group}
		p.Whom = slices.DeleteFunc(c.listNames(g), func(name string) bool { return !g.Covers(c.example(g, name)) })
		if len(p.Whom) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// listNames returns the resources that the check may be about, with the keys of extra that the rule names.
func (c check) listNames(g scenarios.Grant) (names []string) {
	for _, r := range c.resources {
		names = append(names, r)
		if r == "userextras" {
			names = append(names, c.extraKeys(g)...)
		}
	}
	return slices.Compact(names)
}

// extraKeys returns the keys of extra that a rule names and that the check can ask for, appended to the resource.
// Nobody sends the key *, but for four values or more a constrained mode asks for it first.
func (c check) extraKeys(g scenarios.Grant) (keys []string) {
	for _, resource := range g.Resources {
		head, key, _ := strings.Cut(resource, "/")
		isExtra := head == "userextras" || head == "*"
		isLegacyStar := key == "*" && c.mode == oracle.Legacy
		if isExtra && key != "" && !isLegacyStar {
			keys = append(keys, "userextras/"+key)
		}
	}
	return keys
}

// example returns a check of this kind that a rule may allow.
func (c check) example(g scenarios.Grant, name string) authorizationv1.SubjectAccessReviewSpec {
	resource, key, _ := strings.Cut(name, "/")
	a := &authorizationv1.ResourceAttributes{Verb: c.verb(), Group: c.group, Resource: resource, Subresource: key, Name: "any"}
	if len(g.Names) > 0 {
		a.Name = g.Names[0]
	}
	switch {
	case name == "userextras":
		a.Subresource = "any"
	case name == "serviceaccounts":
		a.Namespace = g.Namespace
	case c.mode == oracle.AssociatedNode:
		a.Name = "*"
	}
	return authorizationv1.SubjectAccessReviewSpec{User: g.Subject.User, Groups: []string{g.Subject.Group}, ResourceAttributes: a}
}

// explainUseless returns why a rule lets nobody impersonate, although it looks as if it did.
func explainUseless(g scenarios.Grant) string {
	const unlike = "no check of impersonation has such a verb, API group and resource"
	server, err := oracle.New(oracle.Config{Kubernetes: oracle.Versions()[0], Grants: []scenarios.Grant{g}})
	if err != nil {
		return unlike
	}
	for _, c := range checks {
		for _, name := range c.listNames(g) {
			if !strings.HasPrefix(g.Resources[0], strings.TrimSuffix(name, "/*")) {
				continue
			}
			if misses := server.NearMisses(c.example(g, name)); len(misses) > 0 {
				return misses[0].Differs
			}
		}
	}
	return unlike
}

// complete sets what would serve in place of the rule.
func (h *Holder) complete(all bound) {
	isForEverybody, isForAllTokens, isVoid := false, false, true
	var blocked []string
	for _, p := range h.Powers {
		if p.Never != "" {
			continue
		}
		isVoid = false
		hasNames := len(p.Grant.Names) > 0
		switch {
		case p.Mode == "":
			isForAllTokens = isForAllTokens || !hasNames
		case p.Mode != oracle.Legacy:
			namesNobody := !p.Action() && !hasNames && p.Mode != oracle.AssociatedNode
			isForEverybody = isForEverybody || namesNobody
		case !h.Wildcard:
			isForEverybody = isForEverybody || !hasNames
			grants, why := all.instead(h.Subject, p)
			h.Least, blocked = append(h.Least, grants...), append(blocked, why...)
		}
	}
	h.Least = mergeAll(h.Subject, h.Least)
	switch {
	case isVoid:
		h.Instead = "nothing: it grants nothing"
	case h.Wildcard:
		h.Instead = "name the verbs: * has those of impersonation, and any that is to come"
	case isForEverybody:
		h.Instead = "name whom: an audit log says who is impersonated, and for what (authzconf advise AUDIT-LOG)"
	case len(blocked) > 0:
		h.Instead = "part has to stay with legacy: " + strings.Join(slices.Compact(blocked), "; ")
	case len(h.Least) > 0:
		h.Instead = "the same names by constrained modes, for what they may do themselves"
	case isForAllTokens:
		h.Instead = "name the service accounts: a token of any of them is as good as impersonating it, and of one that is bound to a node, the node"
	default:
		h.Instead = "nothing narrower: it names whom and what"
	}
}

// instead returns the constrained grants for the users whom a legacy power names: the users themselves, and what these
// may do, because impersonating them is good for no more than that. blocked are the users whom no constrained mode can
// serve.
func (b bound) instead(subject scenarios.Subject, p Power) (grants []scenarios.Grant, blocked []string) {
	for _, resource := range p.Whom {
		for _, name := range p.Grant.Names {
			mode, target := oracle.UserInfo, scenarios.Subject{User: name}
			g := scenarios.Grant{
				Subject:   subject,
				APIGroups: []string{authentication},
				Resources: []string{resource},
				Names:     []string{name},
				Namespace: p.Grant.Namespace,
			}
			node, isNode := strings.CutPrefix(name, nodePrefix)
			key, isExtra := strings.CutPrefix(resource, "userextras/")
			switch {
			case resource == "serviceaccounts":
				mode, target = oracle.ServiceAccount, scenarios.Subject{User: serviceaccount.MakeUsername(g.Namespace, name)}
			case resource == "groups" && name == user.SystemPrivilegedGroup, resource == "userextras":
				blocked = append(blocked, "no constrained mode takes the group system:masters, and of extra keys have to be named")
				continue
			case resource == "groups":
				target = scenarios.Subject{Group: name}
			case resource == "users" && isNode:
				mode, g.Resources, g.Names = oracle.ArbitraryNode, []string{"nodes"}, []string{node}
			case isExtra && !isConstrainedKey(key):
				blocked = append(blocked, fmt.Sprintf("the key %s of extra is not a lower-case domain with a path", key))
				continue
			}
			g.Verbs = []string{identityPrefix + string(mode)}
			grants = append(append(grants, g), b.actions(target, mode)...)
		}
	}
	return grants, blocked
}

// isConstrainedKey reports whether constrained modes take a key of extra.
func isConstrainedKey(key string) bool {
	isPath := len(validation.IsDomainPrefixedPath(field.NewPath("key"), key)) == 0
	return isPath && key == strings.ToLower(key)
}

// bound has the grants of every subject. Once it was asked for, it also has what a subject may do, as grants of action
// checks.
type bound struct {
	grants map[scenarios.Subject][]*scenarios.Grant
	may    map[powerKey][]scenarios.Grant
}

func newBound(rules []scenarios.BoundRule) bound {
	b := bound{grants: map[scenarios.Subject][]*scenarios.Grant{}, may: map[powerKey][]scenarios.Grant{}}
	for i, r := range rules {
		b.grants[r.Subject] = append(b.grants[r.Subject], &rules[i].Grant)
	}
	return b
}

// actions returns what a subject may do, as grants that allow it by a mode.
func (b bound) actions(subject scenarios.Subject, mode oracle.Mode) []scenarios.Grant {
	key := powerKey{subject, mode, true}
	may, known := b.may[key]
	if !known {
		for _, g := range b.grants[subject] {
			action, verbs := *g, g.Verbs
			if slices.Contains(verbs, "*") { // every verb that API servers have
				verbs = slices.Concat(namedVerbs, unnamedVerbs)
			}
			action.Verbs = seq.Map(verbs, func(v string) string { return onPrefix + string(mode) + ":" + v })
			may = append(may, action)
		}
		may = mergeAll(subject, may)
		b.may[key] = may
	}
	return may
}

// mergeAll merges grants of one subject whose lists have several parts.
func mergeAll(subject scenarios.Subject, grants []scenarios.Grant) []scenarios.Grant {
	out := merge(subject.User, slices.Concat(seq.Map(grants, scenarios.Grant.Parts)...))
	for i := range out {
		out[i].Subject = subject
	}
	return out
}
