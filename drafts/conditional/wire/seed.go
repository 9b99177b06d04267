package wire

import (
	"slices"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Seed is the text of 4 February 2026, a week before it was merged. conditionsChain is a list of sets, and every
// condition has a type. The JSON of the types in drafts/conditional/vectors is that of this revision.
var Seed = &Revision{
	Name:  "seed",
	Text:  "KEP-5681 as of 4 February 2026",
	Rules: vectors.Rules{Chain: "conditionsChain", Sent: "conditionSets", Condition: 1024, Conditions: vectors.MaxConditions, Depth: 1},
	CEL:   "k8s.io/authorization-cel",
	marks: []string{"conditionsChain", "type"},
	spec:  modeSpec,
	status: shaped(func(s vectors.SubjectAccessReviewStatus) (vectors.SubjectAccessReviewStatus, error) {
		return s, flat(s.ConditionsChain)
	}, same),
	request: shaped(func(q vectors.AuthorizationConditionsRequest) (vectors.AuthorizationConditionsRequest, error) {
		return q, flat(q.ConditionSets)
	}, same),
	response: withoutUID(shaped(func(a vectors.AuthorizationConditionsResponse) (vectors.AuthorizationConditionsResponse, error) {
		if a.ConditionsChain != nil {
			return a, &Inexpressible{"seed", "conditions that evaluate to conditions"}
		}
		return a, nil
	}, func(a vectors.AuthorizationConditionsResponse) (vectors.AuthorizationConditionsResponse, error) {
		a.ConditionsChain = nil // the response has no such field
		return a, nil
	})),
}

// flat is an error for a set of sets.
func flat(chain []vectors.ConditionSet) error {
	if slices.ContainsFunc(chain, func(s vectors.ConditionSet) bool { return s.ConditionsChain != nil }) {
		return &Inexpressible{"seed", "a set of sets"}
	}
	return nil
}
