package model

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// Type is the type of the conditions that the model answers with.
const Type = "authzconf.dev/cel"

// Authorizer has loaded policies. It can be used by several goroutines.
type Authorizer struct {
	env      *environments
	mode     vectors.FailureMode
	policies []policy

	mu       sync.Mutex
	programs map[string]cel.Program // of conditions, by their text
}

type policy struct {
	id     string
	effect vectors.Decision
	// tree has macros as they are written; whole is the policy with all variables.
	tree  ast.Expr
	whole cel.Program
}

// New loads policies. The failure mode is what a Deny policy in error counts as.
func New(policies []vectors.Policy, mode vectors.FailureMode) (*Authorizer, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	a := &Authorizer{env: env, mode: mode, programs: map[string]cel.Program{}}
	for _, p := range policies {
		_, whole, err := compiled(env.whole, p.Expression)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.ID, err)
		}
		tree, issues := env.plain.Parse(p.Expression)
		if issues.Err() != nil {
			return nil, fmt.Errorf("policy %s: %w", p.ID, issues.Err())
		}
		one := policy{id: p.ID, effect: p.Effect, tree: tree.NativeRep().Expr(), whole: whole}
		// The fields of request are of known types, which cel-go is not told: a policy must fit them.
		text, err := substituted(one.tree, vectors.RequestFields(authorizationv1.SubjectAccessReviewSpec{}))
		if err == nil {
			_, _, err = compiled(env.rest, text)
		}
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.ID, err)
		}
		a.policies = append(a.policies, one)
	}
	return a, nil
}

// partial is what is left of a policy: a truth, or a condition.
type partial struct {
	truth     vectors.Truth
	condition string
}

// partially evaluates a policy with what is known.
func (a *Authorizer) partially(p *policy, request map[string]any) (partial, error) {
	text, err := substituted(p.tree, request)
	if err != nil {
		return partial{}, err
	}
	for {
		tree, program, err := compiled(a.env.rest, text, cel.EvalOptions(cel.OptPartialEval, cel.OptTrackState))
		if err != nil {
			// With what is known written out the types do not fit: an error already.
			return partial{truth: vectors.Error}, nil //nolint:nilerr // it is the policy's error, a truth like the others
		}
		v, details, err := program.Eval(a.env.nothing)
		if err != nil || !types.IsUnknown(v) {
			return partial{truth: truthOf(v, err)}, nil
		}
		left, err := a.env.rest.ResidualAst(tree, details)
		if err != nil {
			return partial{}, err
		}
		condition, err := cel.AstToString(left)
		if err != nil || condition == text || !strings.Contains(condition, "?") {
			return partial{condition: condition}, err
		}
		// A conditional in the branch of another is folded only once it is outside.
		text = condition
	}
}

// Authorize is the first phase: the status of the review. The policies' strength decides what is asked for later:
// Deny before NoOpinion before Allow, and of each what is certain before what is not ("Authorizer requirements").
func (a *Authorizer) Authorize(spec *vectors.SubjectAccessReviewSpec) (*vectors.SubjectAccessReviewStatus, error) {
	request := vectors.RequestFields(spec.SubjectAccessReviewSpec)
	left := map[vectors.Decision][]vectors.Condition{}
	var always []vectors.Condition
	certain := map[vectors.Decision]map[vectors.Truth]bool{vectors.Deny: {}, vectors.NoOpinion: {}, vectors.Allow: {}}
	for i := range a.policies {
		p := &a.policies[i]
		got, err := a.partially(p, request)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.id, err)
		}
		if got.truth != "" {
			certain[p.effect][got.truth] = true
			if p.effect == vectors.Allow && got.truth == vectors.True {
				always = []vectors.Condition{{ID: p.id, Effect: p.effect, Type: Type, Condition: "true"}}
			}
			continue
		}
		left[p.effect] = append(left[p.effect], vectors.Condition{ID: p.id, Effect: p.effect, Type: Type, Condition: got.condition})
	}
	return a.answer(left, always, certain, spec.Mode()), nil
}

// answer puts together what is left of all policies; always is an Allow policy that is certain.
func (a *Authorizer) answer(left map[vectors.Decision][]vectors.Condition, always []vectors.Condition, certain map[vectors.Decision]map[vectors.Truth]bool, mode vectors.Mode) *vectors.SubjectAccessReviewStatus {
	deny, noOpinion, allow := certain[vectors.Deny], certain[vectors.NoOpinion], certain[vectors.Allow]
	denyLeft, noOpinionLeft, allowLeft := left[vectors.Deny], left[vectors.NoOpinion], left[vectors.Allow]
	failed := deny[vectors.Error] || noOpinion[vectors.Error]
	var conditions []vectors.Condition
	switch {
	case deny[vectors.True]:
		return status(vectors.Deny, false)
	case deny[vectors.Error] && a.mode == vectors.FailDeny:
		return status(vectors.Deny, true) // a true Deny policy would have the same result
	case failed || noOpinion[vectors.True]:
		// Only Deny is stronger.
		conditions = denyLeft
		if len(conditions) == 0 {
			return status(vectors.NoOpinion, failed)
		}
	case !allow[vectors.True] && len(allowLeft) == 0:
		// Nothing to override for NoOpinion policies.
		conditions = denyLeft
		if len(conditions) == 0 {
			return status(vectors.NoOpinion, false)
		}
	case allow[vectors.True] && len(denyLeft)+len(noOpinionLeft) == 0:
		return status(vectors.Allow, false)
	case allow[vectors.True]:
		conditions = slices.Concat(denyLeft, noOpinionLeft, always)
	default:
		conditions = slices.Concat(denyLeft, noOpinionLeft, allowLeft)
	}
	tooLong := slices.ContainsFunc(conditions, func(c vectors.Condition) bool { return len(c.Condition) > vectors.MaxCondition })
	switch {
	case tooLong:
		return status(fold(denyLeft), true)
	case mode == vectors.None:
		return status(fold(denyLeft), false)
	}
	s := status(vectors.NoOpinion, failed)
	s.ConditionsChain = []vectors.ConditionSet{{AuthorizerName: "model", FailureMode: a.mode, Conditions: conditions}}
	return s
}

// fold is what is answered in the place of conditions that nobody asked for.
func fold(deny []vectors.Condition) vectors.Decision {
	if len(deny) > 0 {
		return vectors.Deny
	}
	return vectors.NoOpinion
}

func status(d vectors.Decision, failed bool) *vectors.SubjectAccessReviewStatus {
	s := &vectors.SubjectAccessReviewStatus{}
	s.Allowed, s.Denied = d == vectors.Allow, d == vectors.Deny
	if failed {
		s.EvaluationError = "a policy cannot be evaluated"
	}
	return s
}

// Evaluate is the second phase. It knows no policies, only what it is sent.
func (a *Authorizer) Evaluate(request *vectors.AuthorizationConditionsRequest) (*vectors.AuthorizationConditionsResponse, error) {
	variables := request.Variables()
	out := &vectors.AuthorizationConditionsResponse{}
	for _, set := range request.ConditionSets {
		var effects []vectors.Decision
		var truths []vectors.Truth
		for _, c := range set.Conditions {
			program, err := a.program(c.Condition)
			if err != nil {
				return nil, fmt.Errorf("condition %s: %w", c.ID, err)
			}
			v, _, err := program.Eval(variables)
			effects, truths = append(effects, c.Effect), append(truths, truthOf(v, err))
		}
		d, failed := Evaluate(set.FailureMode, effects, truths)
		if failed {
			out.EvaluationError = "a condition cannot be evaluated"
		}
		if d != vectors.NoOpinion {
			out.Allowed, out.Denied = d == vectors.Allow, d == vectors.Deny
			return out, nil
		}
	}
	return out, nil
}

func (a *Authorizer) program(text string) (cel.Program, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, ok := a.programs[text]; ok {
		return p, nil
	}
	_, p, err := compiled(a.env.rest, text)
	if err == nil {
		a.programs[text] = p
	}
	return p, err
}

// AtOnce is the decision of one phase: what the policies say if everything is known.
func (a *Authorizer) AtOnce(spec *vectors.SubjectAccessReviewSpec, data *vectors.ConditionData) vectors.Decision {
	variables := data.Variables()
	variables[vectors.RequestVariable] = vectors.RequestFields(spec.SubjectAccessReviewSpec)
	effects := make([]vectors.Decision, len(a.policies))
	truths := make([]vectors.Truth, len(a.policies))
	for i := range a.policies {
		v, _, err := a.policies[i].whole.Eval(variables)
		effects[i], truths[i] = a.policies[i].effect, truthOf(v, err)
	}
	d, _ := Evaluate(a.mode, effects, truths)
	return d
}
