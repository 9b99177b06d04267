package reference

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	authorizationv1 "k8s.io/api/authorization/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/lru"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// FirstPhase is the result of the first phase: a concrete decision, or conditions.
type FirstPhase struct {
	Concrete   vectors.Decision    // the decision if there are no conditions
	Conditions []vectors.Condition // without a type, which is added when they are sent
	// Reason says which policy has decided.
	Reason string
	Err    error // the error of policies that could not be evaluated
}

// CanBecomeAllowed reports whether the request may still be allowed.
func (d FirstPhase) CanBecomeAllowed() bool {
	return d.Concrete == vectors.Allow || d.has(vectors.Allow)
}

func (d FirstPhase) has(e vectors.Decision) bool {
	return slices.ContainsFunc(d.Conditions, func(c vectors.Condition) bool { return c.Effect == e })
}

// Fold returns the concrete decision for a client that does not accept conditions: Deny if any condition might deny,
// else no opinion (section "Authorizer requirements").
func (d FirstPhase) Fold() vectors.Decision {
	switch {
	case len(d.Conditions) == 0:
		return d.Concrete
	case d.has(vectors.Deny):
		return vectors.Deny
	}
	return vectors.NoOpinion
}

// group is the result of the policies of one effect.
type group struct {
	applies    string // the policy that is true, or is in error
	err        error
	conditions []vectors.Condition
}

// partially evaluates the policies of an effect as far as the request allows.
func (s *Snapshot) partially(effect vectors.Decision, spec authorizationv1.SubjectAccessReviewSpec) (g group) {
	request, data := vectors.RequestFields(spec), knownData(spec)
	all := map[string]any{vectors.RequestVariable: request}
	maps.Copy(all, data)
	for i, p := range s.policies {
		if p.Effect != effect {
			continue
		}
		out, _, ok := evaluate(s.programs[i], all)
		if !ok {
			out = evaluatePartially(p.Expression, request, data)
		}
		switch {
		case out.err != nil:
			g.err = fmt.Errorf("policy %s: %w", p.ID, out.err)
			if effect != vectors.Allow { // policies fail closed: an error never allows
				g.applies = p.ID
			}
		case out.residual != "" && effect == vectors.Allow && neverTrue(out.residual):
			// Such a condition "never contributes to an Allow decision" (section "Computing a concrete decision from a
			// ConditionSet").
		case out.residual != "":
			g.conditions = append(g.conditions,
				vectors.Condition{ID: p.ID, Effect: effect, Condition: out.residual, Description: p.Description},
			)
		case out.value:
			return group{applies: p.ID}
		}
	}
	return g
}

// Decide runs the first phase. Decisions take precedence in the order Deny, conditional Deny, NoOpinion, conditional
// NoOpinion, Allow, conditional Allow (section "Authorizer requirements"). Decide returns conditions only if they can
// change the decision.
func (s *Snapshot) Decide(spec authorizationv1.SubjectAccessReviewSpec) FirstPhase {
	deny := s.partially(vectors.Deny, spec)
	denies := deny.err == nil || s.FailureMode != vectors.FailNoOpinion
	if deny.applies != "" && denies {
		return FirstPhase{Concrete: vectors.Deny, Reason: "policy " + deny.applies, Err: deny.err}
	}
	soft := s.partially(vectors.NoOpinion, spec)
	if deny.applies != "" { // the Deny policy in error counts as no opinion; a condition may still deny
		soft = deny
	}
	if soft.applies != "" { // NoOpinion overrides the Allow policies of the same authorizer
		return conditions(FirstPhase{Concrete: vectors.NoOpinion, Reason: "policy " + soft.applies, Err: soft.err}, deny.conditions)
	}
	allow := s.partially(vectors.Allow, spec)
	if allow.applies != "" {
		d := FirstPhase{Concrete: vectors.Allow, Reason: "policy " + allow.applies}
		if len(deny.conditions)+len(soft.conditions) == 0 {
			return d
		}
		allow.conditions = []vectors.Condition{
			{ID: allow.applies, Effect: vectors.Allow, Condition: "true", Description: "allowed unless something else applies"},
		}
	}
	d := FirstPhase{Concrete: vectors.NoOpinion, Reason: "no policy applies", Err: allow.err}
	if len(allow.conditions) == 0 { // without Allow conditions a NoOpinion condition has nothing to override
		return conditions(d, deny.conditions)
	}
	return conditions(d, deny.conditions, soft.conditions, allow.conditions)
}

// conditions returns a decision with conditions, if there are any.
func conditions(d FirstPhase, groups ...[]vectors.Condition) FirstPhase {
	d.Conditions = slices.Concat(append([][]vectors.Condition{d.Conditions}, groups...)...)
	if len(d.Conditions) > 0 {
		d.Reason = ""
	}
	return d
}

// programs caches compiled conditions, because the same conditions are evaluated often.
var programs = lru.New(4096)

func program(condition string) (cel.Program, error) {
	if p, ok := programs.Get(condition); ok {
		return p.(cel.Program), nil
	}
	env, _ := environments()
	p, err := compileIn(env, condition)
	if err == nil {
		programs.Add(condition, p)
	}
	return p, err
}

// compileIn compiles an expression to a program with the cost limit of an API server.
func compileIn(env *cel.Env, expression string, options ...cel.ProgramOption) (cel.Program, error) {
	compiled, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, celError(issues.Err())
	}
	p, err := env.Program(compiled, append(options, cel.CostLimit(celconfig.PerCallLimit))...)
	if err != nil {
		return nil, celError(err)
	}
	return p, nil
}

// Holds returns the truth of a condition.
func Holds(condition string, data map[string]any) (bool, error) {
	p, err := program(condition)
	if err != nil {
		return false, err
	}
	out, _, err := p.Eval(data)
	if err != nil {
		return false, celError(err)
	}
	v, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the condition is of type %s, expected bool", out.Type().TypeName())
	}
	return v, nil
}

// Evaluator evaluates a condition: it reports whether the condition holds.
type Evaluator func(vectors.Condition) (bool, error)

// EvaluateSet returns the decision that follows from a set (section "Computing a concrete decision from a
// ConditionSet"). Deny comes before NoOpinion before Allow, and for each effect a true condition comes before an error.
// An error in a Deny condition is treated as the failure mode says. An error in a NoOpinion condition is no opinion. An
// error in an Allow condition is ignored.
func EvaluateSet(set vectors.ConditionSet, truth Evaluator) (effect vectors.Decision, reason string, err error) {
	var ignored error
	for _, effect := range vectors.Effects() {
		var failed error
		for _, c := range set.Conditions {
			if c.Effect != effect {
				continue
			}
			if is, err := truth(c); err != nil {
				failed = errors.Join(failed, fmt.Errorf("condition %s: %w", c.ID, err))
			} else if is {
				return effect, fmt.Sprintf("condition %s", c.ID), nil
			}
		}
		switch {
		case failed != nil && effect == vectors.Deny && set.FailureMode != vectors.FailNoOpinion:
			return vectors.Deny, "a condition cannot be evaluated", failed
		case failed != nil && effect != vectors.Allow:
			return vectors.NoOpinion, "a condition cannot be evaluated", failed
		case failed != nil:
			ignored = failed
		}
	}
	return vectors.NoOpinion, "no condition applies", ignored
}
