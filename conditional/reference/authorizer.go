package reference

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/authzconf/authzconf/conditional/vectors"
)

const (
	// TypeCEL is the KEP's condition type that an API server would evaluate itself.
	TypeCEL = "k8s.io/authorization-cel"
	// DefaultName is the authorizer's name unless another is given.
	DefaultName = "authzconf-conditional"
)

// Authorizer answers reviews. Its policies may be replaced at any time.
type Authorizer struct {
	// Name is the authorizerName of its sets, Type that of its conditions.
	Name, Type string

	snapshot atomic.Pointer[Snapshot]
}

// New is an authorizer with these policies.
func New(s *Snapshot) *Authorizer {
	a := &Authorizer{Name: DefaultName, Type: TypeCEL}
	a.Use(s)
	return a
}

// Use replaces the policies, all at once. Conditions that were given before stay what they were: they carry all
// that their evaluation needs.
func (a *Authorizer) Use(s *Snapshot) { a.snapshot.Store(s) }

// Snapshot are the policies of the moment.
func (a *Authorizer) Snapshot() *Snapshot { return a.snapshot.Load() }

// Review is the first phase, in the form that the client asked for.
func (a *Authorizer) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	return a.Status(a.Snapshot().Decide(spec.SubjectAccessReviewSpec), spec)
}

// Status writes a decision down.
func (a *Authorizer) Status(d FirstPhase, spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	asked := spec.Mode()
	if len(d.Conditions) == 0 || asked == vectors.None || !exact(spec.SubjectAccessReviewSpec) {
		return concrete(d.Fold(), cmp.Or(d.Reason, "it depends on conditions"), d.Err)
	}
	set := vectors.ConditionSet{AuthorizerName: a.Name, FailureMode: cmp.Or(a.Snapshot().FailureMode, vectors.FailDeny)}
	for _, c := range d.Conditions {
		c.Type = a.Type
		if asked == vectors.Optimized {
			c.Description = ""
		}
		set.Conditions = append(set.Conditions, c)
	}
	status := vectors.SubjectAccessReviewStatus{ConditionsChain: []vectors.ConditionSet{set}, EvaluationError: text(d.Err)}
	if err := status.Validate(asked); err != nil {
		return concrete(d.Fold(), "it depends on conditions that cannot be written down", err)
	}
	return status
}

func concrete(e vectors.Decision, reason string, err error) vectors.SubjectAccessReviewStatus {
	return vectors.SubjectAccessReviewStatus{Allowed: e == vectors.Allow, Denied: e == vectors.Deny, Reason: reason, EvaluationError: text(err)}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Evaluate is the second phase. It looks at what it is handed and at no policy.
func (a *Authorizer) Evaluate(req *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	data := req.ConditionData.Variables()
	var ignored error
	for i, set := range req.ConditionSets {
		switch {
		case set.Validate() != nil:
			return response(vectors.Deny, "a set is not valid", fmt.Errorf("conditionSets[%d]: %w", i, set.Validate()))
		case set.AuthorizerName != a.Name:
			return response(vectors.Deny, "a set of another authorizer", fmt.Errorf("conditionSets[%d]: authorizerName %q: it is %q", i, set.AuthorizerName, a.Name))
		case set.Allowed:
			return response(vectors.Allow, "allowed without conditions", ignored)
		case set.Denied:
			return response(vectors.Deny, "denied without conditions", ignored)
		}
		effect, reason, err := EvaluateSet(set, a.truth(data))
		ignored = errors.Join(ignored, err)
		if effect != vectors.NoOpinion || i+1 == len(req.ConditionSets) {
			return response(effect, reason, ignored)
		}
	}
	return response(vectors.NoOpinion, "there are no conditions", ignored)
}

// truth evaluates conditions of the authorizer's own type.
func (a *Authorizer) truth(data map[string]any) Evaluator {
	return func(c vectors.Condition) (bool, error) {
		if c.Type != a.Type {
			return false, fmt.Errorf("type %q: this authorizer evaluates %q", c.Type, a.Type)
		}
		return Holds(c.Condition, data)
	}
}

func response(e vectors.Decision, reason string, err error) vectors.AuthorizationConditionsResponse {
	return vectors.AuthorizationConditionsResponse{Allowed: e == vectors.Allow, Denied: e == vectors.Deny, Reason: reason, EvaluationError: text(err)}
}
