package certify

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// kindFaults are wrong about what is asked, in ways that no comparison of strings is.
func kindFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		decides("paths-open", "ignores-path", "whatever is not a resource is allowed", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if r.NonResourceAttributes != nil {
					return scenarios.Allow
				}
				return right(r)
			}
		}),
		decides(
			"selectors-refused",
			"selectors-change-the-decision",
			"reviews with a selector are never allowed",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					if a := r.ResourceAttributes; a != nil &&
						(a.LabelSelector != nil || a.FieldSelector != nil) {
						return scenarios.NoOpinion
					}
					return right(r)
				}
			},
		),
		decides(
			"selector-as-name",
			"selectors-change-the-decision",
			"metadata.name of a field selector counts before the namespace",
			also(func(r review) (review, bool) {
				a := r.ResourceAttributes
				return without(r, func(b *authorizationv1.ResourceAttributes) {
					b.Verb = "get"
					b.FieldSelector = nil
				}), a != nil && a.FieldSelector != nil
			}),
		),
	}
}

const (
	nodeName = "authentication.kubernetes.io/node-name"
	nodeKeys = "authentication.kubernetes.io/associated-node-keys"
)

// identityFaults are wrong about who asks.
func identityFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		decides(
			"group-as-user",
			"decided-by-something-else",
			"a group that is named as a granted user stands for the user",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					for _, g := range r.Groups {
						r := r
						if r.User = g; right(r) == scenarios.Allow {
							return scenarios.Allow
						}
					}
					return right(r)
				}
			},
		),
		decides(
			"associated-node-by-extra",
			"associated-node-misread",
			"associated-node is decided by the node-name extra, which the API server takes away",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					if strings.Contains(verbOf(r), "associated-node") && len(r.Extra[nodeName]) == 0 {
						return scenarios.NoOpinion
					}
					return right(r)
				}
			},
		),
		decides(
			"associated-node-by-keys",
			"associated-node-misread",
			"who has associated-node-keys is taken for one that may",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					if strings.Contains(verbOf(r), "associated-node") && len(r.Extra[nodeKeys]) > 0 {
						return scenarios.Allow
					}
					return right(r)
				}
			},
		),
		decides(
			"one-extra-only",
			"extras-change-the-decision",
			"a user with several extra keys is not recognised",
			func(right reference.Decider) reference.Decider {
				return func(r review) scenarios.Decision {
					if len(r.Extra) > 1 {
						return scenarios.NoOpinion
					}
					return right(r)
				}
			},
		),
	}
}
