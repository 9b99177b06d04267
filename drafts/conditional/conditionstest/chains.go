package conditionstest

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// askChains asks the union of the library, with the authorizer in it. The authorizer before it has no opinion, at once
// or because its condition is false. The authorizer behind it decides what it does not decide.
func askChains(t T, all []*vectors.Vector, a authorizer.Authorizer, o Options) error {
	t.Helper()
	plan, err := certification.NewPlan(all, o.Seed)
	if err == nil {
		err = o.Load(plan.Policies())
	}
	if err != nil {
		return err
	}
	calls := 0
	for _, v := range all {
		w := plan.Bound(v.ID)
		for _, i := range evaluations(w) {
			spec := w.FirstPhase(i).Spec
			for _, c := range chains {
				calls++
				if err := c.ask(t.Context(), a, spec, w.Steps[i].Evaluate); err != nil {
					t.Errorf("%s: step %d, in a chain %s: %v", place(v), i, c.name, err)
				}
			}
		}
	}
	t.Logf("conditionstest: position in the chain: %d requests", calls)
	return nil
}

// evaluations returns the steps of a vector that evaluate conditions and have one right decision. Steps after a change
// of the policies are left out: they are about policies that are not loaded.
func evaluations(w *vectors.Webhook) (steps []int) {
	for i, s := range w.Steps {
		if s.SetPolicies != nil {
			return steps
		}
		if s.Evaluate == nil || len(s.Evaluate.Want.OneOf) != 1 {
			continue
		}
		if w.FirstPhase(i).Spec.Mode() != vectors.None {
			steps = append(steps, i)
		}
	}
	return steps
}

type chain struct {
	name           string
	before, behind authorizer.Authorizer
	then           vectors.Decision // the decision of the chain where the authorizer has no opinion
}

var chains = []chain{
	{"behind nobody, before one that allows", nil, always(authorizer.DecisionAllow), vectors.Allow},
	{"behind one without an opinion, before one that denies", always(authorizer.DecisionNoOpinion), always(authorizer.DecisionDeny), vectors.Deny},
	{"behind a condition that is false, before nobody", undecided{}, nil, vectors.NoOpinion},
}

func (c *chain) ask(ctx context.Context, a authorizer.Authorizer, spec vectors.SubjectAccessReviewSpec, step *vectors.EvaluateStep) error {
	authorizers := []union.NamedAuthorizer{
		{AuthorizerName: "before", Authorizer: c.before},
		{AuthorizerName: "authorizer", Authorizer: a},
		{AuthorizerName: "behind", Authorizer: c.behind},
	}
	all, err := union.New(slices.DeleteFunc(authorizers, func(one union.NamedAuthorizer) bool { return one.Authorizer == nil })...)
	if err != nil {
		return err
	}
	want := step.Want.OneOf[0]
	if want == vectors.NoOpinion {
		want = c.then
	}
	attributes := attributesOf(spec.SubjectAccessReviewSpec)
	d := all.ConditionsAwareAuthorize(ctx, attributes)
	got, _, _ := parts(d)
	if !d.IsUnconditional() {
		got, _, _ = all.EvaluateConditions(ctx, d, admission{attributes, &step.Data})
	}
	if got.String() != string(want) {
		return fmt.Errorf("the chain decides %s, want %s", got, want)
	}
	return nil
}

func always(d authorizer.Decision) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return d, "", nil
	})
}

// undecided denies on a condition that is always false, and that evaluates itself.
type undecided struct{ authorizer.AuthorizerFunc }

func (undecided) ConditionsAwareAuthorize(context.Context, authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionConditionsMap([]authorizer.Condition{authorizer.GenericCondition{
		ID: "conditionstest.authzconf.dev/never",
		EvaluateFunc: func(context.Context, authorizer.ConditionsData) authorizer.ConditionEvaluationResult {
			return authorizer.ConditionEvaluationResultBoolean(false)
		},
	}}, nil, nil)
}

func (undecided) EvaluateConditions(
	ctx context.Context,
	d authorizer.ConditionsAwareDecision,
	data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return d.ConditionsMap().Evaluate(ctx, data, nil)
}
