package advice

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// Neighbour is an impersonation that was not seen and that differs in one respect from one that was.
type Neighbour struct {
	ObservedImpersonation
	Differs string // user, verb, resource, namespace, name or path
}

// neighbourSuffix is the end of names that were not seen.
const neighbourSuffix = "-neighbour"

// Neighbours returns, for each impersonation that was seen, neighbours that must be denied: with another user, verb,
// resource, namespace and name. It leaves out what the requestor was also seen to do in that mode. gaps counts the
// respects in which there is no neighbour to try, such as another namespace where all of them are allowed.
func Neighbours(observations []ObservedImpersonation) (out []Neighbour, gaps map[string]int) {
	wide := footprint{}
	for _, s := range observations {
		wide[s.foot()] = true
	}
	gaps = map[string]int{}
	for _, s := range observations {
		if s.Mode == "" {
			continue
		}
		stranger := s // somebody of the same kind as whom nobody was seen
		stranger.As = scenarios.Impersonate{User: s.As.User + neighbourSuffix}
		strangers := []Neighbour{{stranger, "user"}}
		for differs, candidates := range s.changedActions() {
			n := slices.IndexFunc(candidates, func(a Action) bool { return !wide.includes(s, a) })
			if n < 0 {
				gaps[differs]++
				continue
			}
			next := s
			next.Action = candidates[n]
			strangers = append(strangers, Neighbour{next, differs})
		}
		slices.SortFunc(strangers, func(a, b Neighbour) int { return compareActions(a.Action, b.Action) })
		out = append(out, strangers...)
	}
	return out, gaps
}

var (
	namedVerbs   = []string{"get", "update", "patch", "delete"}
	unnamedVerbs = []string{"list", "watch", "create", "deletecollection"}
	// bySelector are verbs that have a name if a field selector asks for one.
	bySelector = []string{"list", "watch"}
	paths      = []string{"get", "post", "put", "delete"}
)

// changedActions returns the actions that differ from a seen one in one respect.
func (s ObservedImpersonation) changedActions() map[string][]Action {
	change := func(values []string, set func(*Action, string)) (out []Action) {
		for _, v := range values {
			a := s.Action
			if set(&a, v); a != s.Action {
				out = append(out, a)
			}
		}
		return out
	}
	verb := func(a *Action, v string) { a.Verb = v }
	if s.Action.Path != "" {
		return map[string][]Action{
			"verb": change(paths, verb),
			"path": change([]string{s.Action.Path + neighbourSuffix}, func(a *Action, v string) { a.Path = v }),
		}
	}
	s.Action = s.Sendable()
	s.Action.AnyName = false
	respectsName := s.Action.Name != ""
	verbs := unnamedVerbs
	switch {
	case respectsName && slices.Contains(bySelector, s.Action.Verb):
		verbs = bySelector
	case respectsName:
		verbs = namedVerbs
	}
	respects := map[string][]Action{
		"verb": change(verbs, verb),
		"resource": change([]string{"configmaps", "secrets", "endpoints", "limitranges"}, func(a *Action, v string) {
			a.Resource, a.APIGroup, a.Version, a.Subresource = v, "", "v1", ""
		}),
	}
	if s.Action.Namespace != "" && s.Action.Resource != "namespaces" {
		respects["namespace"] = change([]string{s.Action.Namespace + neighbourSuffix}, func(a *Action, v string) { a.Namespace = v })
	}
	if respectsName {
		respects["name"] = change([]string{s.Action.Name + neighbourSuffix}, func(a *Action, v string) {
			if a.Resource == "namespaces" && a.Namespace != "" {
				a.Namespace = v // the name of a namespace is also its namespace
			}
			a.Name = v
		})
	}
	return respects
}

// footprint is what a requestor was seen to do in a mode, as any user. Grants of that mode have to allow it as all of
// these users.
type footprint map[footKey]bool

type footKey struct {
	requestor string
	mode      oracle.Mode
	action    Action
}

// foot returns the part of an impersonation that counts for a footprint.
func (s ObservedImpersonation) foot() footKey {
	s.Action.Version, s.Action.AnyName = "", false
	return footKey{s.Requestor.Name, s.Mode, s.Action}
}

// includes reports whether the requestor was seen to do an action, or a wider one: without a name, which RBAC cannot
// tell from all names, or in all namespaces.
func (f footprint) includes(s ObservedImpersonation, a Action) bool {
	s.Action = a
	key := s.foot()
	for _, key.action.Name = range []string{a.Name, ""} {
		for _, key.action.Namespace = range []string{a.Namespace, ""} {
			if f[key] {
				return true
			}
		}
	}
	return false
}

// Sendable returns the action with an example of a name, if names were left out.
func (s ObservedImpersonation) Sendable() Action {
	a := s.Action
	if a.AnyName && a.Name == "" {
		a.Name = "any"
	}
	return a
}

// String returns the impersonation for people.
func (s ObservedImpersonation) String() string {
	return fmt.Sprintf("%s as %s: %s", s.Requestor.Name, s.As.User, s.Action)
}
