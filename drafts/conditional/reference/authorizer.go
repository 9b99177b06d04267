// Package reference is a reference authorizer for KEP-5681 (Conditional Authorization). Its policies are CEL
// expressions over the request, as the KEP writes them, and over objects that are unknown when the request is
// authorized. The part of an expression that is still unknown then is returned as a condition, and evaluated when the
// objects are known.
//
// The decision record about it is docs/adr/*-conditional-reference.md.
package reference

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

const (
	// TypeCEL is the condition type that an API server would evaluate itself, as the KEP has it.
	TypeCEL = "k8s.io/authorization-cel"
	// DefaultName is the authorizer's name unless another is given.
	DefaultName = "authzconf-conditional"
	// domain is put in front of the IDs of policies without a domain, in revisions in which the IDs of conditions need
	// one.
	domain = "conditional.authzconf.dev/"
)

// Authorizer answers reviews. Its policies can be replaced at any time.
type Authorizer struct {
	// Name is the authorizerName of its sets. Type is the type of its conditions.
	Name, Type string
	Wire       *wire.Revision // its answers follow the rules of this revision

	snapshot atomic.Pointer[Snapshot]
}

// New returns an authorizer with these policies, which answers in a revision of the wire.
func New(w *wire.Revision, s *Snapshot) *Authorizer {
	a := &Authorizer{Name: DefaultName, Type: w.CEL, Wire: w}
	a.Use(s)
	return a
}

// Use replaces all policies at once. It does not affect conditions that were given before: they have everything that
// their evaluation needs.
func (a *Authorizer) Use(s *Snapshot) { a.snapshot.Store(s) }

// Snapshot returns the policies of the moment.
func (a *Authorizer) Snapshot() *Snapshot { return a.snapshot.Load() }

// Review runs the first phase. It answers in the form that the client asked for.
func (a *Authorizer) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	return a.Status(a.Snapshot().Decide(spec.SubjectAccessReviewSpec), spec)
}

// Status writes a decision down.
func (a *Authorizer) Status(d FirstPhase, spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	mode := spec.Mode()
	if len(d.Conditions) == 0 || mode == vectors.None || !isExact(spec.SubjectAccessReviewSpec) {
		return concrete(d.Fold(), cmp.Or(d.Reason, "it depends on conditions"), d.Err)
	}
	set := vectors.ConditionSet{AuthorizerName: a.setName()}
	if !a.Wire.Rules.Union {
		set.FailureMode = cmp.Or(a.Snapshot().FailureMode, vectors.FailDeny)
	}
	for _, c := range d.Conditions {
		c.Type, c.ID = a.Type, a.qualify(c.ID)
		if mode == vectors.Optimized {
			c.Description = ""
		}
		set.Conditions = append(set.Conditions, c)
	}
	status := concrete(vectors.NoOpinion, "", d.Err)
	if a.Wire.Rules.Union {
		status.EvaluationError = "" // a conditional decision must have no other field
	}
	status.ConditionsChain = []vectors.ConditionSet{set}
	if err := a.Wire.Rules.Validate(status, mode); err != nil {
		return concrete(d.Fold(), "it depends on conditions that cannot be written down", err)
	}
	return status
}

// setName returns the authorizerName of the authorizer's one set. It is empty in revisions in which a decision can be
// without a union.
func (a *Authorizer) setName() string {
	if a.Wire.Rules.Union {
		return ""
	}
	return a.Name
}

// qualify returns the ID of the condition that is made from a policy.
func (a *Authorizer) qualify(id string) string {
	if a.Wire.Rules.Qualified && !strings.Contains(id, "/") {
		return domain + id
	}
	return id
}

// concrete returns the answer of either phase without conditions.
func concrete(e vectors.Decision, reason string, err error) vectors.SubjectAccessReviewStatus {
	s := vectors.SubjectAccessReviewStatus{Allowed: e == vectors.Allow, Denied: e == vectors.Deny, Reason: reason}
	if err != nil {
		s.EvaluationError = err.Error()
	}
	return s
}

// Evaluate runs the second phase. It uses only the request, and none of the authorizer's policies.
func (a *Authorizer) Evaluate(req *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	if a.Wire.Rules.Staged && isStage(req.ConditionData) {
		if left := a.evaluateStage(req); left != nil {
			return vectors.AuthorizationConditionsResponse{ConditionsChain: left}
		}
	}
	data := req.ConditionData.Variables()
	var ignored error
	for i, set := range req.ConditionSets {
		invalid := a.Wire.Rules.ValidateSet(set)
		switch {
		case invalid != nil:
			return concrete(vectors.Deny, "a set is not valid", fmt.Errorf("conditionSets[%d]: %w", i, invalid))
		case set.AuthorizerName != a.setName(), set.ConditionsChain != nil: // this authorizer never sends sets of sets
			return concrete(
				vectors.Deny,
				"a set of another authorizer",
				fmt.Errorf("conditionSets[%d]: authorizerName %q: it is %q", i, set.AuthorizerName, a.setName()),
			)
		case set.Allowed:
			return concrete(vectors.Allow, "allowed without conditions", ignored)
		case set.Denied:
			return concrete(vectors.Deny, "denied without conditions", ignored)
		}
		effect, reason, err := EvaluateSet(set, a.truth(data))
		ignored = errors.Join(ignored, err)
		if effect != vectors.NoOpinion || i+1 == len(req.ConditionSets) {
			return concrete(effect, reason, ignored)
		}
	}
	return concrete(vectors.NoOpinion, "there are no conditions", ignored)
}

// truth returns a function that evaluates conditions of the authorizer's own type.
func (a *Authorizer) truth(data map[string]any) Evaluator {
	return func(c vectors.Condition) (bool, error) {
		if c.Type != a.Type {
			return false, fmt.Errorf("type %q: this authorizer evaluates %q", c.Type, a.Type)
		}
		return Holds(c.Condition, data)
	}
}

// sample is a request by which expressions are checked.
var sample = authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{}}

// knownData returns the late variables whose values follow from the verb: there is no old object before a create, and
// no object in a delete. A create may have the operation CREATE or CONNECT.
func knownData(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	if s.ResourceAttributes == nil {
		return nil
	}
	switch s.ResourceAttributes.Verb {
	case "create":
		return map[string]any{"oldObject": nil}
	case "delete", "deletecollection":
		return map[string]any{"object": nil, "operation": "DELETE"}
	}
	return nil
}

// isExact reports whether a review is about one resource of one version, as conditions need (section on version skew).
func isExact(s authorizationv1.SubjectAccessReviewSpec) bool {
	r := s.ResourceAttributes
	return r != nil && r.Version != "" && r.Version != "*" && r.Group != "*" && r.Resource != "*" && r.Verb != "*"
}

// Subject returns the reference authorizer, in a revision of the wire, as a subject of model.Explore.
func Subject(w *wire.Revision) model.Subject {
	return func(policies []vectors.Policy, mode vectors.FailureMode) (model.LoadedAuthorizer, error) {
		s, err := NewSnapshot(policies)
		if err != nil {
			return nil, err
		}
		s.FailureMode = mode
		return New(w, s), nil
	}
}
