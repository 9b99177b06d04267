package vectors

import (
	"encoding/json"
	"errors"
	"fmt"
)

// DecodeAccess reads a SubjectAccessReview of v1. Fields that it does not know pass: a newer API server may send
// them. A mode that it does not know is None: who asks for what nobody knows cannot be relied on to evaluate it.
func DecodeAccess(body []byte) (spec SubjectAccessReviewSpec, err error) {
	var in SubjectAccessReview
	if err := json.Unmarshal(body, &in); err != nil {
		return spec, errors.New("the body is not a review in JSON")
	}
	s := in.Spec
	switch {
	case in.Kind != AccessKind || in.APIVersion != AccessVersion:
		return spec, fmt.Errorf("it is not of kind %s of %s", AccessKind, AccessVersion)
	case s.User == "" && len(s.Groups) == 0:
		return spec, errors.New("the spec has neither user nor groups")
	case (s.ResourceAttributes == nil) == (s.NonResourceAttributes == nil):
		return spec, errors.New("the spec must have one of resourceAttributes and nonResourceAttributes")
	}
	if m := s.Mode(); m != HumanReadable && m != Optimized {
		s.ConditionalAuthorization = nil
	}
	return s, nil
}

// DecodeConditions reads the request of an AuthorizationConditionsReview.
func DecodeConditions(body []byte) (*AuthorizationConditionsRequest, error) {
	var in AuthorizationConditionsReview
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, errors.New("the body is not a review in JSON")
	}
	switch {
	case in.Kind != ConditionsKind || in.APIVersion != ConditionsVersion:
		return nil, fmt.Errorf("it is not of kind %s of %s", ConditionsKind, ConditionsVersion)
	case in.Request == nil || len(in.Request.ConditionSets) == 0:
		return nil, errors.New("the review has no conditionSets")
	}
	return in.Request, nil
}

// AnswerAccess is the review that carries a status.
func AnswerAccess(s SubjectAccessReviewStatus) ([]byte, error) {
	out := struct {
		APIVersion string                    `json:"apiVersion"`
		Kind       string                    `json:"kind"`
		Status     SubjectAccessReviewStatus `json:"status"`
	}{AccessVersion, AccessKind, s}
	return json.Marshal(out)
}

// AnswerConditions is the review that carries a response.
func AnswerConditions(r AuthorizationConditionsResponse) ([]byte, error) {
	out := AuthorizationConditionsReview{Response: &r}
	out.APIVersion, out.Kind = ConditionsVersion, ConditionsKind
	return json.Marshal(out)
}
