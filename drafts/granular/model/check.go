package model

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// FieldDecision is a question about the permission of a field, with the answer.
type FieldDecision struct {
	Verb    string
	Allowed bool
}

// Allowed reports whether each chain has a permission that is granted.
func Allowed(chains []permissions.Chain, granted func(verb string) bool) bool {
	return !slices.ContainsFunc(chains, func(c permissions.Chain) bool { return !c.Has(granted) })
}

// Excluded returns the chains with a permission that the ordinary one does not contain.
func Excluded(chains []permissions.Chain) []permissions.Chain {
	return slices.DeleteFunc(slices.Clone(chains), func(c permissions.Chain) bool { return !c.Excluded() })
}

// Check returns what is wrong with the questions that were asked for chains, and with the decision after them. It
// follows the rules of the KEP, and does not repeat a procedure (KEP-3617, steps 5 and 8, and "Risks and Mitigations").
func Check(chains []permissions.Chain, checks []FieldDecision, allowed bool) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	depth := map[string]int{}
	for _, c := range chains {
		for _, p := range c {
			if d, ok := depth[p.Verb]; !ok || p.Depth < d {
				depth[p.Verb] = p.Depth
			}
		}
	}
	answers, last := map[string]bool{}, 0
	granted := func(verb string) bool { return answers[verb] }
	for _, a := range checks {
		isNeeded := func(c permissions.Chain) bool {
			return c.Has(func(verb string) bool { return verb == a.Verb }) && !c.Has(granted)
		}
		d, known := depth[a.Verb]
		_, isRepeated := answers[a.Verb]
		switch {
		case !known:
			say("%s was asked, and is not a permission of a field that changes", a.Verb)
			continue
		case isRepeated:
			say("%s was asked twice", a.Verb)
		case d < last:
			say("%s was asked after a more specific permission", a.Verb)
		case isLost(chains, answers):
			say("%s was asked after the request had failed", a.Verb)
		case !slices.ContainsFunc(chains, isNeeded):
			say("%s was asked, and no field needs it any more", a.Verb)
		}
		last = max(last, d)
		answers[a.Verb] = a.Allowed
	}
	all := Allowed(chains, granted)
	switch {
	case allowed && !all:
		say("the request was allowed, and not every field is covered")
	case !allowed && all:
		say("the request was denied, and every field is covered")
	case !allowed && !isLost(chains, answers):
		say("the request was denied before it had failed")
	}
	return wrong
}

// isLost reports whether some chain has nothing left to ask for.
func isLost(chains []permissions.Chain, answers map[string]bool) bool {
	open := func(verb string) bool {
		allowed, known := answers[verb]
		return allowed || !known
	}
	return slices.ContainsFunc(chains, func(c permissions.Chain) bool { return !c.Has(open) })
}
