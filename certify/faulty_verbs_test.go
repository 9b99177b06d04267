package certify

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// known are the verbs that authorizers written before KEP-5284 know.
var known = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "escalate", "use", "approve", "sign"}

// also is a decider that asks the right one a second question.
func also(change func(review) (review, bool)) func(reference.Decider) reference.Decider {
	return func(right reference.Decider) reference.Decider {
		return func(r review) scenarios.Decision {
			if d := right(r); d == scenarios.Allow {
				return d
			}
			if other, ok := change(r); ok {
				return right(other)
			}
			return scenarios.NoOpinion
		}
	}
}

// verbFaults get verbs wrong.
func verbFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		mutant("verb-prefix", "verb-near-miss", "a granted verb covers every verb that begins with it", func(e *engine) {
			e.verb = func(g, a string) bool { return g == "*" || strings.HasPrefix(a, g) }
		}),
		mutant("verb-reverse-prefix", "verb-near-miss", "a granted verb covers every verb that it begins with", func(e *engine) {
			e.verb = func(g, a string) bool { return g == "*" || strings.HasPrefix(g, a) }
		}),
		mutant("verb-trimmed", "verb-near-miss", "blanks around verbs are cut off", func(e *engine) {
			e.verb = func(g, a string) bool { return star(g, strings.TrimSpace(a)) }
		}),
		mutant("verb-contains", "verb-near-miss", "a granted verb covers every verb that it is in", func(e *engine) {
			e.verb = func(g, a string) bool { return g == "*" || strings.Contains(a, g) }
		}),
		mutant("verb-case", "verb-case-insensitive", "verbs are compared without regard to case", func(e *engine) {
			e.verb = func(g, a string) bool { return g == "*" || strings.EqualFold(g, a) }
		}),
		mutant("verb-star-literal", "wildcard-not-understood", "the verb * is taken for a verb of that name", func(e *engine) { e.verb = equal }),
		mutant("verb-cut-at-colon", "legacy-implies-constrained", "what is asked is cut at the first colon", func(e *engine) {
			e.verb = func(g, a string) bool { first, _, _ := strings.Cut(a, ":"); return star(g, first) || star(g, a) }
		}),
		mutant("grant-cut-at-colon", "constrained-implies-legacy", "what is granted is cut at the first colon", func(e *engine) {
			e.verb = func(g, a string) bool { first, _, _ := strings.Cut(g, ":"); return star(g, a) || first == a }
		}),
		mutant("opaque-as-plain", "opaque-verb-implied", "list:labels is allowed to who may list", func(e *engine) {
			e.verb = func(g, a string) bool { return star(g, a) || strings.HasPrefix(a, g+":") && slices.Contains(known, g) }
		}),
		mutant("granular-family", "opaque-verb-implied", "a granted granular:… covers granular, and the reverse", func(e *engine) {
			e.verb = func(g, a string) bool {
				return star(g, a) || strings.HasPrefix(g, "granular") && strings.HasPrefix(a, "granular")
			}
		}),
		mutant("modes-mixed", "modes-mixed", "one constrained mode covers the others", func(e *engine) {
			e.verb = func(g, a string) bool {
				return star(g, a) || strings.HasPrefix(g, "impersonate:") && strings.HasPrefix(a, "impersonate:")
			}
		}),
	}
}

// modeFaults get the modes of impersonation wrong.
func modeFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		decides("unknown-verbs-allowed", "unknown-mode-allowed", "verbs that it does not know are allowed", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if !slices.Contains(known, verbOf(r)) {
					return scenarios.Allow
				}
				return right(r)
			}
		}),
		decides("unknown-modes-as-user-info", "unknown-mode-allowed", "a mode that it does not know is taken for user-info", also(func(r review) (review, bool) {
			verb := verbOf(r)
			if !strings.HasPrefix(verb, "impersonate") || strings.Contains(verb, "node") || strings.Contains(verb, "serviceaccount") {
				return r, false
			}
			parts := strings.Split(verb, ":")
			if len(parts) < 2 {
				return r, false
			}
			parts[1] = "user-info"
			return withVerb(r, strings.Join(parts, ":")), true
		})),
		decides("impersonate-implies-all", "legacy-implies-constrained", "who may impersonate may do it in every mode", also(func(r review) (review, bool) {
			return withVerb(r, "impersonate"), strings.HasPrefix(verbOf(r), "impersonate:")
		})),
		decides("constrained-implies-legacy", "constrained-implies-legacy", "who may impersonate in mode user-info may do it without constraint", also(func(r review) (review, bool) {
			return withVerb(r, "impersonate:user-info"), verbOf(r) == "impersonate"
		})),
		decides("action-implies-plain", "ordinary-verbs-affected", "who may impersonate-on:…:list may list", also(func(r review) (review, bool) {
			return withVerb(r, "impersonate-on:user-info:"+verbOf(r)), true
		})),
		decides("plain-implies-action", "plain-implies-action", "who may list may impersonate-on:…:list", also(func(r review) (review, bool) {
			verb := verbOf(r)
			return withVerb(r, verb[strings.LastIndex(verb, ":")+1:]), strings.HasPrefix(verb, "impersonate-on:")
		})),
		decides("future-actions-allowed", "unknown-mode-allowed", "every verb that begins with impersonate-on: is let through, as the identity check will decide", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if strings.HasPrefix(verbOf(r), "impersonate-on:") {
					return scenarios.Allow
				}
				return right(r)
			}
		}),
	}
}
