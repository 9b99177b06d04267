package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// missingRules are the rules, in their smallest parts, that a user does not hold in a namespace, by plain
// comparison of strings (Covers of k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go). Parts that
// differ in the verb alone are put together again (CompactRules).
func (s *Server) missingRules(u scenarios.User, namespace string, rules []scenarios.Grant) (missing []scenarios.Grant) {
	held := slices.Concat(s.policy.grants, s.grants, s.policy.defaults)
	for _, rule := range rules {
		rule.Namespace = namespace
		for _, part := range rule.Parts() {
			spec := part.Review()
			spec.User, spec.Groups = u.Name, u.Groups
			if scenarios.Covered(held, spec) {
				continue
			}
			same := func(m scenarios.Grant) bool {
				return len(part.NonResourceURLs) == 0 && slices.Equal(m.APIGroups, part.APIGroups) &&
					slices.Equal(m.Resources, part.Resources) && slices.Equal(m.Names, part.Names)
			}
			if i := slices.IndexFunc(missing, same); i >= 0 {
				missing[i].Verbs = append(missing[i].Verbs, part.Verbs...)
				continue
			}
			missing = append(missing, part)
		}
	}
	return missing
}

// compactRule is CompactString of k8s.io/kubernetes/pkg/apis/rbac/v1.
func compactRule(r scenarios.Grant) string {
	var parts []string
	for _, f := range []struct {
		name string
		list []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.Names}, {"Verbs", r.Verbs},
	} {
		if len(f.list) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", f.name, f.list))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
