package model

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/granular/permissions"
)

// Answer is one question about a permission of a field, and what was answered.
type Answer struct {
	Verb    string
	Allowed bool
}

// Allowed says whether each chain has a permission that is granted.
func Allowed(chains []permissions.Chain, granted func(verb string) bool) bool {
	return !slices.ContainsFunc(chains, func(c permissions.Chain) bool { return !c.Has(granted) })
}

// Excluded keeps the chains with a permission that the ordinary one does not contain.
func Excluded(chains []permissions.Chain) []permissions.Chain {
	return slices.DeleteFunc(slices.Clone(chains), func(c permissions.Chain) bool { return !c.Excluded() })
}

// Check says what is wrong with the questions that were asked for chains, and with the decision after them. What
// is right is written here as rules, not as a procedure (KEP-3617, steps 5 and 8, and "Risks and Mitigations").
func Check(chains []permissions.Chain, asked []Answer, allowed bool) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	depth := map[string]int{}
	for _, c := range chains {
		for _, p := range c {
			if d, ok := depth[p.Verb]; !ok || p.Depth < d {
				depth[p.Verb] = p.Depth
			}
		}
	}
	granted, denied, last := map[string]bool{}, map[string]bool{}, 0
	for _, a := range asked {
		d, known := depth[a.Verb]
		switch {
		case !known:
			say("%s was asked, and is not a permission of a field that changes", a.Verb)
			continue
		case granted[a.Verb] || denied[a.Verb]:
			say("%s was asked twice", a.Verb)
		case d < last:
			say("%s was asked after a more specific permission", a.Verb)
		case lost(chains, denied):
			say("%s was asked after the request had failed", a.Verb)
		case !needed(chains, a.Verb, granted):
			say("%s was asked, and no field needs it any more", a.Verb)
		}
		last = max(last, d)
		if a.Allowed {
			granted[a.Verb] = true
		} else {
			denied[a.Verb] = true
		}
	}
	all := Allowed(chains, func(v string) bool { return granted[v] })
	switch {
	case allowed && !all:
		say("the request was allowed, and not every field is covered")
	case !allowed && all:
		say("the request was denied, and every field is covered")
	case !allowed && !lost(chains, denied):
		say("the request was denied before it had failed")
	}
	return wrong
}

// lost says whether some chain has nothing left to ask for.
func lost(chains []permissions.Chain, denied map[string]bool) bool {
	open := func(verb string) bool { return !denied[verb] }
	return slices.ContainsFunc(chains, func(c permissions.Chain) bool { return !c.Has(open) })
}

// needed says whether a chain with the verb is not covered yet.
func needed(chains []permissions.Chain, verb string, granted map[string]bool) bool {
	is, has := func(v string) bool { return v == verb }, func(v string) bool { return granted[v] }
	return slices.ContainsFunc(chains, func(c permissions.Chain) bool { return c.Has(is) && !c.Has(has) })
}
