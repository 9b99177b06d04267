package certification

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// form judges the form of a status by the rules of the KEP, whatever it says. wrong is true if it contradicts
// itself.
func (j *judge) form(e *entry, x Exchange, s *vectors.SubjectAccessReviewStatus, mode vectors.Mode) (wrong bool) {
	note := func(is bool, reason, format string, args ...any) {
		if is {
			wrong = true
			j.note(e, x, false, reason, format, args...)
		}
	}
	note(s.Allowed && s.Denied, "allowed-and-denied", "allowed and denied at once")
	note(s.ConditionsChain != nil && mode == vectors.None, "conditions-not-asked-for", "there is a conditionsChain")
	note(s.ConditionsChain != nil && (s.Allowed || s.Denied), "allowed-beside-conditions", "conditionsChain beside allowed or denied")
	note(s.ConditionsChain != nil && len(s.ConditionsChain) == 0, "empty-chain", "a conditionsChain without sets")
	for _, set := range s.ConditionsChain {
		kinds := 0
		for _, is := range []bool{set.Allowed, set.Denied, len(set.Conditions) > 0} {
			if is {
				kinds++
			}
		}
		note(kinds != 1, "set-of-no-kind", "a set has %d of allowed, denied and conditions, want 1", kinds)
		note(set.AuthorizerName == "", "no-authorizer-name", "a set has no authorizerName")
		note(len(set.Conditions) > vectors.MaxConditions, "too-many-conditions", "%d conditions", len(set.Conditions))
		seen := map[string]bool{}
		for _, c := range set.Conditions {
			note(seen[c.ID], "duplicate-ids", "the ID %.80q twice", c.ID)
			seen[c.ID] = true
			note(vectors.ValidateID(c.ID) != nil, "invalid-id", "the ID %.80q", c.ID)
			note(!slices.Contains(vectors.Effects(), c.Effect), "unknown-effect", "the effect %.80q", c.Effect)
			note(len(content.IsLabelKey(c.Type)) > 0, "invalid-type", "the type %.80q is no label key", c.Type)
			note(len(c.Condition) > vectors.MaxCondition, "condition-too-long", "a condition of %d bytes", len(c.Condition))
		}
	}
	return wrong
}

// effectsOf are the effects of the conditions, each once, sorted.
func effectsOf(s *vectors.SubjectAccessReviewStatus) (out []vectors.Decision) {
	for _, set := range s.ConditionsChain {
		for _, c := range set.Conditions {
			out = append(out, c.Effect)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// residualsOf are the conditions as expressions, if all are CEL.
func residualsOf(s *vectors.SubjectAccessReviewStatus) ([]string, bool) {
	var out []string
	for _, set := range s.ConditionsChain {
		for _, c := range set.Conditions {
			if c.Type != reference.TypeCEL {
				return nil, false
			}
			out = append(out, c.Condition)
		}
	}
	return sortedExpressions(out), true
}

// sortedExpressions writes expressions in one way.
func sortedExpressions(in []string) []string {
	out := make([]string, len(in))
	for i, text := range in {
		out[i] = strings.TrimSpace(text)
		env, err := cel.NewEnv(cel.OptionalTypes(), cel.ClearMacros())
		if err != nil {
			continue
		}
		parsed, issues := env.Parse(text)
		if issues.Err() != nil {
			continue
		}
		if again, err := cel.AstToString(parsed); err == nil {
			out[i] = again
		}
	}
	slices.Sort(out)
	return out
}

// canonical is a status for comparison: conditions have no order.
func canonical(s *vectors.SubjectAccessReviewStatus) string {
	sets := make([]vectors.ConditionSet, len(s.ConditionsChain))
	for i, set := range s.ConditionsChain {
		sets[i] = set
		sets[i].Conditions = slices.SortedFunc(slices.Values(set.Conditions), func(a, b vectors.Condition) int { return strings.Compare(a.ID, b.ID) })
	}
	raw, _ := json.Marshal([]any{s.Allowed, s.Denied, sets}) // of strings and booleans: it cannot fail
	return string(raw)
}
