package recorder

import (
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	"sigs.k8s.io/json"
)

const (
	v1      = "authorization.k8s.io/v1"
	v1beta1 = "authorization.k8s.io/v1beta1"
	kind    = "SubjectAccessReview"
)

// review is one that was read.
type review struct {
	apiVersion string
	spec       authorizationv1.SubjectAccessReviewSpec
}

// probe says whether the harness asked for it itself.
func (r review) probe() bool {
	_, probe := r.spec.Extra[ProbeExtraKey]
	return probe
}

// verb is that of what is asked.
func (r review) verb() string {
	if r.spec.ResourceAttributes != nil {
		return r.spec.ResourceAttributes.Verb
	}
	return r.spec.NonResourceAttributes.Verb
}

// readReview reads a review, or says why it is none that an API server could have meant.
func readReview(body []byte) (review, error) {
	// The decoder of the API server: names are case-sensitive, unknown ones pass.
	var r authorizationv1.SubjectAccessReview
	err := json.UnmarshalCaseSensitivePreserveInts(body, &r)
	// Types are also set on an error, unless it is one of syntax. A v1beta1
	// review is not judged by what v1 says of its fields.
	if r.APIVersion == v1beta1 && r.Kind == kind {
		var old authorizationv1beta1.SubjectAccessReview
		err = json.UnmarshalCaseSensitivePreserveInts(body, &old)
		r.Spec = fromV1beta1(old.Spec)
	}
	switch {
	case err != nil:
		return review{}, err
	case r.Kind != kind:
		return review{}, fmt.Errorf("kind is %.100q, not %s", r.Kind, kind)
	case r.APIVersion != v1 && r.APIVersion != v1beta1:
		return review{}, fmt.Errorf("apiVersion is %.100q, not %s or %s", r.APIVersion, v1, v1beta1)
	}
	return review{r.APIVersion, r.Spec}, checkSpec(&r.Spec)
}

// fromV1beta1 converts field by field, so that the compiler finds a field that only one of the versions has.
func fromV1beta1(in authorizationv1beta1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewSpec {
	out := authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes:    (*authorizationv1.ResourceAttributes)(in.ResourceAttributes),
		NonResourceAttributes: (*authorizationv1.NonResourceAttributes)(in.NonResourceAttributes),
		User:                  in.User,
		Groups:                in.Groups,
		UID:                   in.UID,
	}
	if in.Extra != nil {
		out.Extra = make(map[string]authorizationv1.ExtraValue, len(in.Extra))
		for k, v := range in.Extra {
			out.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	return out
}

// checkSpec refuses what no API server asks: a review about nobody, or one that does not ask exactly one question.
func checkSpec(s *authorizationv1.SubjectAccessReviewSpec) error {
	switch {
	case s.User == "" && len(s.Groups) == 0:
		return errors.New("spec has neither user nor groups")
	case s.ResourceAttributes == nil && s.NonResourceAttributes == nil:
		return errors.New("spec has neither resourceAttributes nor nonResourceAttributes")
	case s.ResourceAttributes != nil && s.NonResourceAttributes != nil:
		return errors.New("spec has both resourceAttributes and nonResourceAttributes")
	}
	return nil
}
