package reference

import (
	"github.com/authzconf/authzconf/conditional/model"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// FailureMode is what a Deny policy in error counts as for the reference authorizer: it cannot be told another.
const FailureMode = vectors.FailDeny

// Subject is the reference authorizer as a subject of model.Explore.
func Subject(policies []vectors.Policy, _ vectors.FailureMode) (model.Loaded, error) {
	s, err := NewSnapshot(policies)
	return subject{New(s)}, err
}

type subject struct{ a *Authorizer }

func (s subject) Authorize(spec *vectors.SubjectAccessReviewSpec) (*vectors.SubjectAccessReviewStatus, error) {
	status := s.a.Review(*spec)
	return &status, nil
}

func (s subject) Evaluate(req *vectors.AuthorizationConditionsRequest) (*vectors.AuthorizationConditionsResponse, error) {
	response := s.a.Evaluate(req)
	return &response, nil
}
