package reference

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// maxExpression is the largest number of bytes of a policy's expression. The revision of the wire limits the
	// residual.
	maxExpression = 16 << 10
	maxPolicies   = 1024 // a bound for a file
)

// Snapshot is a set of policies that does not change. One decision is made of one snapshot.
type Snapshot struct {
	// FailureMode is how a Deny policy in error is treated. The default is Deny.
	FailureMode vectors.FailureMode

	policies []vectors.Policy
	programs []cel.Program // of the policies
}

// Load reads a file of policies.
func Load(name string, data []byte) (*Snapshot, error) {
	var file struct {
		Policies []vectors.Policy `yaml:"policies"`
	}
	doc, err := scenarios.Decode(name, data, "a list of policies", &file)
	if err != nil {
		return nil, err
	}
	s, at, err := compileSnapshot(file.Policies)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doc.At(at), err)
	}
	return s, nil
}

// NewSnapshot checks policies and compiles them.
func NewSnapshot(policies []vectors.Policy) (*Snapshot, error) {
	s, at, err := compileSnapshot(policies)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return s, nil
}

// compileSnapshot is like NewSnapshot, and also returns the place of the error.
func compileSnapshot(policies []vectors.Policy) (_ *Snapshot, at string, err error) {
	if len(policies) > maxPolicies {
		return nil, "$.policies", fmt.Errorf("%d policies, at most %d", len(policies), maxPolicies)
	}
	var programs []cel.Program
	seen := map[string]bool{}
	for i, p := range policies {
		at := fmt.Sprintf("$.policies[%d].", i)
		if err := vectors.ValidateID(p.ID); err != nil {
			return nil, at + "id", err
		}
		if seen[p.ID] {
			return nil, at + "id", fmt.Errorf("the ID %q is there already", p.ID)
		}
		seen[p.ID] = true
		if !slices.Contains(vectors.Effects(), p.Effect) {
			return nil, at + "effect", fmt.Errorf("effect %q: expected Allow, Deny or NoOpinion", p.Effect)
		}
		if len(p.Expression) > maxExpression {
			return nil, at + "expression", fmt.Errorf("%d bytes, at most %d", len(p.Expression), maxExpression)
		}
		program, err := policyProgram(p.Expression)
		if err != nil {
			return nil, at + "expression", err
		}
		programs = append(programs, program)
	}
	return &Snapshot{policies: slices.Clone(policies), programs: programs}, "", nil
}

// Policies returns a copy of the policies.
func (s *Snapshot) Policies() []vectors.Policy { return slices.Clone(s.policies) }
