package library

import (
	"github.com/authzconf/authzconf/conditional/equivalence"
	reference "github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// ReferenceMode is what a Deny policy in error counts as for the reference
// authorizer: it cannot be told another.
const ReferenceMode = vectors.FailDeny

// Reference is the reference authorizer as a subject of the equivalence.
type Reference struct{}

// Load implements equivalence.Subject.
func (Reference) Load(policies []vectors.Policy, _ vectors.FailureMode) (equivalence.Loaded, error) {
	all := make([]reference.Policy, len(policies))
	for i, p := range policies {
		all[i] = reference.Policy{ID: p.ID, Effect: p.Effect, Expression: p.Expression}
	}
	s, err := reference.NewSnapshot(all)
	if err != nil {
		return nil, err
	}
	return loaded{reference.New(s)}, nil
}

type loaded struct{ a *reference.Authorizer }

func (l loaded) Authorize(spec *vectors.SubjectAccessReviewSpec) (*vectors.SubjectAccessReviewStatus, error) {
	status := l.a.Review(*spec)
	return &status, nil
}

func (l loaded) Evaluate(req *vectors.AuthorizationConditionsRequest) (*vectors.AuthorizationConditionsResponse, error) {
	response := l.a.Evaluate(req)
	return &response, nil
}
