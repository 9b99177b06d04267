package wire

import (
	"fmt"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Merged is the text in kubernetes/enhancements. A conditionSetChain can be nested, a set has one conditionsType for
// all of its conditions, and conditions can evaluate to conditions. The Go sketch of the text gives ConditionsType the
// JSON name of the authorizer; its examples have conditionsType. The examples also have spec and status where the
// sketch of AuthorizationConditionsReview has request and response. This package uses conditionsType, request and
// response.
//
// No text limits how deep sets may be nested: the limit is ours.
var Merged = &Revision{
	Name: "merged",
	Text: "KEP-5681 as merged into kubernetes/enhancements, commit a2589d2322b2",
	Rules: vectors.Rules{
		Chain:      "conditionSetChain",
		Sent:       "conditionSetChain",
		Condition:  1024,
		Conditions: vectors.MaxConditions,
		Depth:      16,
		Staged:     true,
	},
	CEL:      "k8s.io/authorization-cel",
	marks:    []string{"conditionSetChain", "conditionsType"},
	spec:     modeSpec,
	status:   mergedAnswer,
	response: withoutUID(mergedAnswer),
	request: shaped(func(q vectors.AuthorizationConditionsRequest) (mergedRequest, error) {
		chain, err := toMerged(q.ConditionSets)
		return mergedRequest{chain, q.ConditionData}, err
	}, func(w mergedRequest) (vectors.AuthorizationConditionsRequest, error) {
		chain, err := fromMerged(w.ConditionSetChain)
		return vectors.AuthorizationConditionsRequest{ConditionSets: chain, ConditionData: w.ConditionData}, err
	}),
}

// mergedAnswer is the form of a status, and of a response, which have the same fields.
var mergedAnswer = shaped(func(s vectors.SubjectAccessReviewStatus) (mergedStatus, error) {
	chain, err := toMerged(s.ConditionsChain)
	return mergedStatus{plainStatusOf(s), chain}, err
}, func(w mergedStatus) (vectors.SubjectAccessReviewStatus, error) {
	chain, err := fromMerged(w.ConditionSetChain)
	return w.withConditions(chain), err
})

type mergedStatus struct {
	plainStatus
	ConditionSetChain []mergedSet `json:"conditionSetChain,omitempty"`
}

type mergedRequest struct {
	ConditionSetChain     []mergedSet `json:"conditionSetChain,omitempty"`
	vectors.ConditionData `json:",inline"`
}

type mergedSet struct {
	Allowed           bool                `json:"allowed,omitempty"`
	Denied            bool                `json:"denied,omitempty"`
	FailureMode       vectors.FailureMode `json:"failureMode,omitempty"`
	AuthorizerName    string              `json:"authorizerName"`
	ConditionsType    string              `json:"conditionsType,omitempty"`
	Conditions        []mergedCondition   `json:"conditions,omitempty"`
	ConditionSetChain []mergedSet         `json:"conditionSetChain,omitempty"`
}

type mergedCondition struct {
	ID          string           `json:"id"`
	Effect      vectors.Decision `json:"effect"`
	Condition   string           `json:"condition"`
	Description string           `json:"description,omitempty"`
}

func toMerged(chain []vectors.ConditionSet) (out []mergedSet, err error) {
	for _, s := range chain {
		w := mergedSet{Allowed: s.Allowed, Denied: s.Denied, FailureMode: s.FailureMode, AuthorizerName: s.AuthorizerName}
		for i, c := range s.Conditions {
			if i > 0 && c.Type != w.ConditionsType {
				return nil, &Inexpressible{"merged", "conditions of several types in one set"}
			}
			w.ConditionsType = c.Type
			w.Conditions = append(w.Conditions, mergedCondition{c.ID, c.Effect, c.Condition, c.Description})
		}
		if w.ConditionSetChain, err = toMerged(s.ConditionsChain); err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

func fromMerged(chain []mergedSet) (out []vectors.ConditionSet, err error) {
	if chain != nil {
		out = []vectors.ConditionSet{}
	}
	for _, w := range chain {
		if w.ConditionsType != "" && len(w.Conditions) == 0 {
			return nil, fmt.Errorf("the set of %.80q has a conditionsType and no conditions", w.AuthorizerName)
		}
		s := vectors.ConditionSet{Allowed: w.Allowed, Denied: w.Denied, FailureMode: w.FailureMode, AuthorizerName: w.AuthorizerName}
		for _, c := range w.Conditions {
			s.Conditions = append(s.Conditions,
				vectors.Condition{ID: c.ID, Effect: c.Effect, Type: w.ConditionsType, Condition: c.Condition, Description: c.Description},
			)
		}
		if s.ConditionsChain, err = fromMerged(w.ConditionSetChain); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
