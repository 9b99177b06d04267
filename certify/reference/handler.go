// Package reference is an authorizer webhook that holds the neutral policy of certification and gets everything
// right. It is what other authorizers are measured against, and what the harness itself is: an alarm about the
// reference is a false one.
package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

const (
	// V1 and V1beta1 are the versions of SubjectAccessReview.
	V1      = "authorization.k8s.io/v1"
	V1beta1 = "authorization.k8s.io/v1beta1"
	// Kind is the only one that is answered.
	Kind = "SubjectAccessReview"

	// maxBody is what an API server itself accepts as a request body.
	maxBody = 3 << 20
)

// Decider answers a review.
type Decider func(authorizationv1.SubjectAccessReviewSpec) scenarios.Decision

// Handler answers reviews as the decider says.
func Handler(decide Decider) http.Handler {
	return Posted(func(body []byte) ([]byte, error) {
		version, spec, err := Decode(body)
		if err != nil {
			return nil, err
		}
		return Answer(version, decide(spec)), nil
	})
}

// Posted answers bodies that are posted, in JSON. An error is about what was sent: it is answered with 400.
func Posted(answer func(body []byte) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "reviews are posted", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
		if err != nil {
			http.Error(w, "the body is too large, or ends early", http.StatusBadRequest)
			return
		}
		out, err := answer(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // an error means that the client has gone away
	})
}

// Answer is the review that carries a decision. The spec is not echoed: an API server reads only the status.
func Answer(version string, d scenarios.Decision) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{},"spec":{},"status":{"allowed":%t,"denied":%t}}`+"\n",
		version, Kind, d == scenarios.Allow, d == scenarios.Deny)
}

// Decode reads a review of either version as v1. Fields that it does not know pass: a newer API server may send
// them.
func Decode(body []byte) (version string, spec authorizationv1.SubjectAccessReviewSpec, err error) {
	var head struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Spec       json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return "", spec, errors.New("the body is not a JSON object of a review")
	}
	switch {
	case head.Kind != Kind:
		return "", spec, fmt.Errorf("the kind is not %s", Kind)
	case len(head.Spec) == 0:
		return "", spec, errors.New("the review has no spec")
	case head.APIVersion == V1:
		err = json.Unmarshal(head.Spec, &spec)
	case head.APIVersion == V1beta1:
		// The same, but that groups are called group.
		old := struct {
			*authorizationv1.SubjectAccessReviewSpec
			Group []string `json:"group"`
		}{SubjectAccessReviewSpec: &spec}
		err = json.Unmarshal(head.Spec, &old)
		spec.Groups = old.Group
	default:
		return "", spec, fmt.Errorf("the apiVersion is neither %s nor %s", V1, V1beta1)
	}
	if err != nil {
		return "", spec, errors.New("the spec of the review cannot be read")
	}
	return head.APIVersion, spec, check(spec)
}

// check refuses what asks nothing, or about nobody.
func check(s authorizationv1.SubjectAccessReviewSpec) error {
	switch {
	case s.User == "" && len(s.Groups) == 0:
		return errors.New("the spec has neither user nor groups")
	case (s.ResourceAttributes == nil) == (s.NonResourceAttributes == nil):
		return errors.New("the spec must have one of resourceAttributes and nonResourceAttributes")
	}
	return nil
}
