package certify

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

func always(string, string) bool { return true }

// attributeFaults get name and namespace of a review wrong.
func attributeFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		mutant("ignores-names", "ignores-name", "the names of a grant are not looked at", func(e *engine) { e.name = always }),
		mutant("empty-name-any", "ignores-name", "a review without a name is allowed to who may do it with one", func(e *engine) {
			e.name = func(g, a string) bool { return a == "" || g == a }
		}),
		mutant("granted-name-star", "wildcard-name", "the granted name * covers all names", func(e *engine) { e.name = star }),
		mutant("asked-name-star", "wildcard-name", "the asked name * is covered by any granted name", func(e *engine) {
			e.name = func(g, a string) bool { return a == "*" || g == a }
		}),
		mutant("truncates-names", "truncates-names", "names are cut after 63 characters", func(e *engine) {
			cut := func(s string) string { return s[:min(len(s), 63)] }
			e.name = func(g, a string) bool { return cut(g) == cut(a) }
		}),
		mutant("ignores-namespace", "ignores-namespace", "the namespace of a grant is not looked at", func(e *engine) { e.namespace = always }),
		mutant("empty-namespace-any", "ignores-namespace", "a review across all namespaces is allowed to who may do it in one", func(e *engine) {
			e.namespace = func(g, a string) bool { return g == "" || a == "" || g == a }
		}),
		mutant("cluster-wide-lost", "does-not-allow-what-is-granted", "a grant for all namespaces covers none of them", func(e *engine) { e.namespace = equal }),
	}
}

// kindFaults get the kind of object, or the path, of a review wrong.
func kindFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		mutant("ignores-api-group", "ignores-api-group", "API groups are not looked at", func(e *engine) { e.group = always }),
		mutant("core-group-any", "ignores-api-group", "a grant for the core group covers all groups", func(e *engine) {
			e.group = func(g, a string) bool { return g == "" || star(g, a) }
		}),
		mutant("ignores-resource", "ignores-resource", "resources are not looked at", func(e *engine) {
			e.resource = func(string, string, string) bool { return true }
		}),
		mutant("ignores-subresource", "ignores-subresource", "subresources are not looked at", func(e *engine) {
			e.resource = func(g, r, _ string) bool {
				base, _, _ := strings.Cut(g, "/")
				return base == "*" || base == r
			}
		}),
		mutant("resource-covers-subresources", "ignores-subresource", "a grant for pods covers pods/exec", func(e *engine) {
			right := e.resource
			e.resource = func(g, r, s string) bool { return right(g, r, s) || g == r }
		}),
		mutant("subresource-star-literal", "wildcard-not-understood", "*/status is taken for a resource of that name", func(e *engine) {
			e.resource = func(g, r, s string) bool {
				if s != "" {
					r += "/" + s
				}
				return star(g, r)
			}
		}),
		mutant("path-prefix", "ignores-path", "a granted path covers what begins with it", func(e *engine) {
			e.path = func(g, a string) bool { return strings.HasPrefix(a, strings.TrimSuffix(g, "*")) }
		}),
		mutant("path-star-literal", "wildcard-not-understood", "a * at the end of a path is taken for a letter", func(e *engine) { e.path = equal }),
		decides("paths-open", "ignores-path", "whatever is not a resource is allowed", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if r.NonResourceAttributes != nil {
					return scenarios.Allow
				}
				return right(r)
			}
		}),
		decides("selectors-refused", "selectors-change-the-decision", "reviews with a selector are never allowed", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if a := r.ResourceAttributes; a != nil && (a.LabelSelector != nil || a.FieldSelector != nil) {
					return scenarios.NoOpinion
				}
				return right(r)
			}
		}),
		decides("selector-as-name", "selectors-change-the-decision", "metadata.name of a field selector counts before the namespace", also(func(r review) (review, bool) {
			a := r.ResourceAttributes
			return without(r, func(b *authorizationv1.ResourceAttributes) { b.Verb, b.FieldSelector = "get", nil }), a != nil && a.FieldSelector != nil
		})),
	}
}

const (
	nodeName = "authentication.kubernetes.io/node-name"
	nodeKeys = "authentication.kubernetes.io/associated-node-keys"
)

// identityFaults get who asks wrong.
func identityFaults() []faultyAuthorizer {
	return []faultyAuthorizer{
		mutant("user-prefix", "ignores-user", "users are compared by their beginning", func(e *engine) {
			e.user = func(g, a string) bool { return strings.HasPrefix(a, g) }
		}),
		mutant("user-case", "ignores-user", "users are compared without regard to case", func(e *engine) { e.user = strings.EqualFold }),
		mutant("user-truncated", "ignores-user", "what stands behind an @ in a user's name is cut off", func(e *engine) {
			e.user = func(g, a string) bool { first, _, _ := strings.Cut(a, "@"); return g == a || g == first }
		}),
		decides("group-as-user", "ignores-user", "a group that is named as a granted user stands for the user", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				for _, g := range r.Groups {
					r := r
					if r.User = g; right(r) == scenarios.Allow {
						return scenarios.Allow
					}
				}
				return right(r)
			}
		}),
		mutant("anyone-is-member", "ignores-groups", "grants to groups are taken for grants to everybody", func(e *engine) {
			e.member = func(string, []string) bool { return true }
		}),
		mutant("first-group-only", "ignores-groups", "only the first group of a user counts", func(e *engine) {
			e.member = func(g string, of []string) bool { return len(of) > 0 && of[0] == g }
		}),
		decides("associated-node-by-extra", "associated-node-misread", "associated-node is decided by the node-name extra, which the API server takes away", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if strings.Contains(verbOf(r), "associated-node") && len(r.Extra[nodeName]) == 0 {
					return scenarios.NoOpinion
				}
				return right(r)
			}
		}),
		decides("associated-node-by-keys", "associated-node-misread", "who has associated-node-keys is taken for one that may", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if strings.Contains(verbOf(r), "associated-node") && len(r.Extra[nodeKeys]) > 0 {
					return scenarios.Allow
				}
				return right(r)
			}
		}),
		decides("one-extra-only", "extras-change-the-decision", "a user with several extra keys is not recognised", func(right reference.Decider) reference.Decider {
			return func(r review) scenarios.Decision {
				if len(r.Extra) > 1 {
					return scenarios.NoOpinion
				}
				return right(r)
			}
		}),
	}
}
