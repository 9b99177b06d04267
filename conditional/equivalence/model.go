package equivalence

import (
	"github.com/authzconf/authzconf/conditional/residual"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// Model is package residual as a Subject.
type Model struct{}

// Load implements Subject.
func (Model) Load(policies []vectors.Policy, mode vectors.FailureMode) (Loaded, error) {
	return residual.New(policies, mode)
}
