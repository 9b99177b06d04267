package equivalence

import (
	"github.com/authzconf/authzconf/oracle/residual"
	"github.com/authzconf/authzconf/vectors"
	"github.com/authzconf/authzconf/vectors/review"
)

// Model is package residual as a Subject.
type Model struct{}

// Load implements Subject.
func (Model) Load(policies []vectors.Policy, mode review.FailureMode) (Loaded, error) {
	return residual.New(policies, mode)
}
