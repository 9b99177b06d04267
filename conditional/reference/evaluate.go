package reference

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/lru"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// programs keeps compiled conditions: the same ones come again and again.
var programs = lru.New(4096)

// program compiles a condition.
func program(condition string) (cel.Program, error) {
	if p, ok := programs.Get(condition); ok {
		return p.(cel.Program), nil
	}
	p, err := compile(condition)
	if err == nil {
		programs.Add(condition, p)
	}
	return p, err
}

// compile reads a condition.
func compile(condition string) (cel.Program, error) {
	env, _ := environments()
	return compileIn(env, condition)
}

// compileIn makes a program of an expression, which may cost as much as an API server allows.
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

// Holds is the truth of a condition.
func Holds(condition string, data map[string]any) (bool, error) {
	p, err := program(condition)
	if err != nil {
		return false, err
	}
	return holds(p, data)
}

// HoldsFresh is Holds without what was compiled before: it is for measuring.
func HoldsFresh(condition string, data map[string]any) (bool, error) {
	p, err := compile(condition)
	if err != nil {
		return false, err
	}
	return holds(p, data)
}

func holds(p cel.Program, data map[string]any) (bool, error) {
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

// Evaluator says whether a condition holds.
type Evaluator func(vectors.Condition) (bool, error)

// EvaluateSet is what a set amounts to (section "Computing a concrete decision from a ConditionSet"): Deny before
// NoOpinion before Allow, in each a true one before an error. An error in a Deny condition is what the failure
// mode says, in a NoOpinion condition no opinion, in an Allow condition nothing.
func EvaluateSet(set vectors.ConditionSet, truth Evaluator) (effect vectors.Decision, reason string, err error) {
	var ignored error
	for _, effect := range vectors.Effects() {
		var failed error
		for _, c := range set.Conditions {
			if c.Effect != effect {
				continue
			}
			is, err := truth(c)
			if err != nil {
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
