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
	return New(s), nil
}
