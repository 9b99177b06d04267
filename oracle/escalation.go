package oracle

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// missingRules are the rules, in their smallest parts, that a user does not hold
// in a namespace, by plain comparison of strings (Covers of
// k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go). Parts
// that differ in the verb alone are put together again (CompactRules).
func (s *Server) missingRules(u scenarios.User, namespace string, rules []rbacv1.PolicyRule) (missing []rbacv1.PolicyRule) {
	held := slices.Concat(s.policy.grants, s.grants, s.policy.defaults)
	held = slices.DeleteFunc(held, func(g scenarios.Grant) bool {
		return !is(g.Subject, u.Name, u.Groups) || g.Namespace != "" && g.Namespace != namespace
	})
	for _, part := range breakDown(rules) {
		if slices.ContainsFunc(held, func(g scenarios.Grant) bool { return ruleCovers(g, part) }) {
			continue
		}
		same := func(m rbacv1.PolicyRule) bool {
			return len(part.NonResourceURLs) == 0 && slices.Equal(m.APIGroups, part.APIGroups) &&
				slices.Equal(m.Resources, part.Resources) && slices.Equal(m.ResourceNames, part.ResourceNames)
		}
		if i := slices.IndexFunc(missing, same); i >= 0 {
			missing[i].Verbs = append(missing[i].Verbs, part.Verbs...)
			continue
		}
		missing = append(missing, part)
	}
	return missing
}

// breakDown is BreakdownRule: one verb, group, resource and name each.
func breakDown(rules []rbacv1.PolicyRule) (parts []rbacv1.PolicyRule) {
	for _, r := range rules {
		names := [][]string{nil}
		if len(r.ResourceNames) > 0 {
			names = nil
			for _, n := range r.ResourceNames {
				names = append(names, []string{n})
			}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, n := range names {
						parts = append(parts, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: n})
					}
				}
			}
		}
		for _, url := range r.NonResourceURLs {
			for _, verb := range r.Verbs {
				parts = append(parts, rbacv1.PolicyRule{NonResourceURLs: []string{url}, Verbs: []string{verb}})
			}
		}
	}
	return parts
}

// ruleCovers tells whether a grant holds a smallest part of a rule. Stars stand
// for themselves in the part, and for everything in the grant.
func ruleCovers(g scenarios.Grant, part rbacv1.PolicyRule) bool {
	if !holds(g.Verbs, part.Verbs[0]) {
		return false
	}
	if len(part.NonResourceURLs) > 0 {
		url := part.NonResourceURLs[0]
		return slices.ContainsFunc(g.NonResourceURLs, func(u string) bool {
			return u == url || strings.HasSuffix(u, "*") && strings.HasPrefix(url, strings.TrimRight(u, "*"))
		})
	}
	resource := part.Resources[0]
	_, sub, isSub := strings.Cut(resource, "/")
	return holds(g.APIGroups, part.APIGroups[0]) &&
		(holds(g.Resources, resource) || isSub && slices.Contains(g.Resources, "*/"+sub)) &&
		(len(g.Names) == 0 || len(part.ResourceNames) > 0 && slices.Contains(g.Names, part.ResourceNames[0]))
}

func holds(list []string, s string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, s)
}

// compactRule is CompactString of k8s.io/kubernetes/pkg/apis/rbac/v1.
func compactRule(r rbacv1.PolicyRule) string {
	var parts []string
	for _, f := range []struct {
		name string
		list []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(f.list) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", f.name, f.list))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
