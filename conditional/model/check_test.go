package model

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// check says in what the model does otherwise than a webhook vector wants.
func check(w *vectors.Webhook) (wrong []string, err error) {
	a, err := New(w.Policies, w.FailureMode)
	if err != nil {
		return nil, err
	}
	answers := map[int]*vectors.SubjectAccessReviewStatus{}
	for i, s := range w.Steps {
		var found []string
		switch {
		case s.SetPolicies != nil:
			a, err = New(s.SetPolicies, w.FailureMode)
		case s.Authorize != nil:
			if answers[i], err = a.Authorize(&s.Authorize.Spec); err == nil {
				found, err = authorized(&s.Authorize.Want, answers[i])
			}
		default:
			found, err = evaluated(a, s.Evaluate, answers[s.Evaluate.Of])
		}
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		for _, f := range found {
			wrong = append(wrong, fmt.Sprintf("step %d: %s", i, f))
		}
	}
	return wrong, nil
}

// authorized holds the model to what is recommended: the first of several decisions.
func authorized(want *vectors.AuthorizeWant, got *vectors.SubjectAccessReviewStatus) (wrong []string, err error) {
	d := got.Decision()
	if d != want.OneOf[0] {
		wrong = append(wrong, fmt.Sprintf("want %s, got %s", want.OneOf[0], d))
	}
	effects, texts := map[vectors.Decision]bool{}, []string{}
	for _, set := range got.ConditionsChain {
		for _, c := range set.Conditions {
			effects[c.Effect] = true
			texts = append(texts, c.Condition)
		}
	}
	if have := slices.Sorted(maps.Keys(effects)); want.Effects != nil && !slices.Equal(have, slices.Sorted(slices.Values(want.Effects))) {
		wrong = append(wrong, fmt.Sprintf("want effects %v, got %v", want.Effects, have))
	}
	if want.Residuals != nil {
		same, err := sameExpressions(want.Residuals, texts)
		if err != nil {
			return nil, err
		}
		if !same {
			wrong = append(wrong, fmt.Sprintf("want conditions %q, got %q", want.Residuals, texts))
		}
	}
	if want.Error != nil && *want.Error != (got.EvaluationError != "") {
		wrong = append(wrong, fmt.Sprintf("want an error: %v, got %q", *want.Error, got.EvaluationError))
	}
	return wrong, nil
}

func evaluated(a *Authorizer, s *vectors.EvaluateStep, of *vectors.SubjectAccessReviewStatus) (wrong []string, err error) {
	d, failed := of.Decision(), of.EvaluationError != ""
	if d == vectors.Conditional {
		response, err := a.Evaluate(&vectors.AuthorizationConditionsRequest{ConditionSets: of.ConditionsChain, ConditionData: s.Data})
		if err != nil {
			return nil, err
		}
		d, failed = response.Decision(), response.EvaluationError != ""
	}
	if d != s.Want.OneOf[0] {
		wrong = append(wrong, fmt.Sprintf("want %s, got %s", s.Want.OneOf[0], d))
	}
	if s.Want.Error != nil && *s.Want.Error != failed {
		wrong = append(wrong, fmt.Sprintf("want an error: %v, got %v", *s.Want.Error, failed))
	}
	return wrong, nil
}

// sameExpressions tells whether two lists hold the same CEL expressions, in any
// order; spaces, quotes and needless parentheses mean nothing.
func sameExpressions(a, b []string) (bool, error) {
	env, err := environment()
	if err != nil {
		return false, err
	}
	normal := func(all []string) ([]string, error) {
		out := []string{}
		for _, text := range all {
			tree, issues := env.plain.Parse(text)
			if issues.Err() != nil {
				return nil, issues.Err()
			}
			one, err := cel.AstToString(tree)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		slices.Sort(out)
		return out, nil
	}
	x, err := normal(a)
	if err != nil {
		return false, err
	}
	y, err := normal(b)
	return err == nil && slices.Equal(x, y), err
}

// The model agrees with every webhook vector.
func TestWebhookVectors(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range all {
		if v.Webhook == nil {
			continue
		}
		n++
		wrong, err := check(v.Webhook)
		if err != nil {
			t.Errorf("%s: %v", v.ID, err)
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", v.ID, w)
		}
	}
	if n < 50 {
		t.Errorf("only %d vectors", n)
	}
}
