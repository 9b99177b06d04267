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

// head is what has to be known of a review when it arrives.
type head struct {
	apiVersion string
	user       string
	probe      bool
}

// readHead reads a review's head, or says why it is no review that an API server
// could have meant. A review that it accepts can be decoded by decodeSpec.
func readHead(body []byte) (head, error) {
	if h, ok := scan(body); ok {
		return h, nil
	}
	return decodeHead(body)
}

// decodeHead is readHead for whatever scan leaves to it; its judgement is the one that counts.
func decodeHead(body []byte) (head, error) {
	// The decoder of the API server: names are case-sensitive, unknown ones pass.
	var r authorizationv1.SubjectAccessReview
	err := json.UnmarshalCaseSensitivePreserveInts(body, &r)
	// Types are also set on an error, unless it is one of syntax. A v1beta1
	// review is not judged by what v1 says of its fields.
	h := head{apiVersion: r.APIVersion}
	if r.APIVersion == v1beta1 && r.Kind == kind {
		r.Spec, err = decodeSpec(v1beta1, body)
	}
	switch {
	case err != nil:
		return h, err
	case r.Kind != kind:
		return h, fmt.Errorf("kind is %.100q, not %s", r.Kind, kind)
	case r.APIVersion != v1 && r.APIVersion != v1beta1:
		return h, fmt.Errorf("apiVersion is %.100q, not %s or %s", r.APIVersion, v1, v1beta1)
	}
	h.user = r.Spec.User
	_, h.probe = r.Spec.Extra[ProbeExtraKey]
	return h, checkSpec(&r.Spec)
}

// decodeSpec reads a review's spec as its version means it and returns it as v1.
func decodeSpec(apiVersion string, body []byte) (authorizationv1.SubjectAccessReviewSpec, error) {
	if apiVersion != v1beta1 {
		var r authorizationv1.SubjectAccessReview
		err := json.UnmarshalCaseSensitivePreserveInts(body, &r)
		return r.Spec, err
	}
	var r authorizationv1beta1.SubjectAccessReview
	err := json.UnmarshalCaseSensitivePreserveInts(body, &r)
	return fromV1beta1(r.Spec), err
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
