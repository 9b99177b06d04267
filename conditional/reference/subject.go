package reference

import (
	"github.com/authzconf/authzconf/conditional/model"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// Subject is the reference authorizer as a subject of model.Explore.
func Subject(policies []vectors.Policy, mode vectors.FailureMode) (model.Loaded, error) {
	s, err := NewSnapshot(policies)
	if err != nil {
		return nil, err
	}
	s.FailureMode = mode
	return subject{New(s)}, nil
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
