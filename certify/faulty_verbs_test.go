package certify

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// known are the verbs that authorizers written before KEP-5284 know.
var known = []string{
	"get",
	"list",
	"watch",
	"create",
	"update",
	"patch",
	"delete",
	"deletecollection",
	"impersonate",
	"bind",
	"escalate",
	"use",
	"approve",
	"sign",
}

// also makes an authorizer that asks the right one a second question.
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

// modeFaults are wrong about modes of impersonation.
func modeFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		decides(
			"unknown-verbs-allowed",
			"verb-implied",
			"verbs that it does not know are allowed",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					if !slices.Contains(known, verbOf(r)) {
						return scenarios.Allow
					}
					return right(r)
				}
			},
		),
		decides(
			"unknown-modes-as-user-info",
			"mode-implied",
			"a mode that it does not know is taken for user-info",
			also(func(r review) (review, bool) {
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
			}),
		),
		decides(
			"future-actions-allowed",
			"mode-implied",
			"every verb that begins with impersonate-on: is let through, as the identity check will decide",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					if strings.HasPrefix(verbOf(r), "impersonate-on:") {
						return scenarios.Allow
					}
					return right(r)
				}
			},
		),
	}
}

// verbOf returns the verb that a review asks about.
func verbOf(s spec) string {
	switch {
	case s.ResourceAttributes != nil:
		return s.ResourceAttributes.Verb
	case s.NonResourceAttributes != nil:
		return s.NonResourceAttributes.Verb
	}
	return ""
}

// withVerb returns the review with another verb.
func withVerb(s spec, verb string) spec {
	out := s.DeepCopy()
	if out.ResourceAttributes != nil {
		out.ResourceAttributes.Verb = verb
	} else if out.NonResourceAttributes != nil {
		out.NonResourceAttributes.Verb = verb
	}
	return *out
}
