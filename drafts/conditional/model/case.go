package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/scenarios"
)

// generatedPolicy is a policy whose expression is known part by part.
type generatedPolicy struct {
	effect     vectors.Decision
	expression *expression
}

// generatedCase is a case: policies, a request, and the data of the second phase.
type generatedCase struct {
	policies []generatedPolicy
	mode     vectors.FailureMode
	facts    *facts
}

// words returns the policies as an authorizer loads them.
func (t *generatedCase) words() []vectors.Policy {
	out := make([]vectors.Policy, 0, len(t.policies))
	for i, p := range t.policies {
		out = append(out, vectors.Policy{ID: fmt.Sprintf("example.com/p%d", i), Effect: p.effect, Expression: p.expression.String()})
	}
	return out
}

// decide returns the decision. If all is set, it is the decision with everything known. Otherwise it is the decision
// that follows from the request alone, or Conditional if none does.
func (t *generatedCase) decide(all bool) vectors.Decision {
	return t.outcome(func(e *expression) []vectors.Truth {
		truth := e.value(t.facts, all)
		if truth == unknown {
			return anything
		}
		return []vectors.Truth{truth}
	})
}

// certain returns the decision that an authorizer can be certain of before the second phase, at best. Such an
// authorizer also knows what the verb says about the objects, and sees that a part next to an error can decide in only
// one way.
func (t *generatedCase) certain() vectors.Decision {
	return t.outcome(func(e *expression) []vectors.Truth { return e.possible(t.facts) })
}

// firstPhase returns the right answers of the first phase: the decision that follows from the request alone, and if
// that is Conditional, also the decision that is certain nevertheless.
func (t *generatedCase) firstPhase() []vectors.Decision {
	out := []vectors.Decision{t.decide(false)}
	if out[0] == vectors.Conditional {
		if d := t.certain(); d != out[0] {
			out = append(out, d)
		}
	}
	return out
}

// outcome returns the decision of the policies for all combinations of their possible truths. It is Conditional if the
// decisions differ.
func (t *generatedCase) outcome(truths func(*expression) []vectors.Truth) (first vectors.Decision) {
	effects := seq.Map(t.policies, func(p generatedPolicy) vectors.Decision { return p.effect })
	parts := seq.Map(t.policies, func(p generatedPolicy) []vectors.Truth { return truths(p.expression) })
	for _, w := range ways(parts) {
		d, _ := Evaluate(t.mode, effects, w)
		first = cmp.Or(first, d)
		if d != first {
			return vectors.Conditional
		}
	}
	return first
}

func (f *facts) spec() *vectors.SubjectAccessReviewSpec {
	s := &vectors.SubjectAccessReviewSpec{ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Optimized}}
	s.User, s.Groups = f.user, f.groups
	if f.hasTeam {
		s.Extra = map[string]authorizationv1.ExtraValue{"team": {f.team}}
	}
	s.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:     f.verb,
		Group:    "example.com",
		Version:  "v1",
		Resource: "things",
		Name:     f.name,
	}
	return s
}

// data returns the data that the second phase gets.
func (f *facts) data() *vectors.ConditionData {
	return &vectors.ConditionData{Operation: f.operation, Object: f.object, OldObject: f.old}
}

func (t *generatedCase) clone() *generatedCase {
	f := *t.facts
	return &generatedCase{policies: slices.Clone(t.policies), mode: t.mode, facts: &f}
}

// vector returns the case as a vector file, with the right decisions.
func (t *generatedCase) vector(reason string) string {
	raw, err := cases.YAML(struct {
		Description string           `json:"description"`
		Source      scenarios.Source `json:"source"`
		Level       vectors.Demand   `json:"level"`
		Webhook     vectors.Webhook  `json:"webhook"`
	}{"Two phases amount to what one phase amounts to.", scenarios.Source{Document: "KEP-5681", Section: "Technical Requirements"}, vectors.Must, vectors.Webhook{
		Policies: t.words(), FailureMode: t.mode, Steps: []vectors.Step{
			{Authorize: &vectors.AuthorizeStep{Spec: *t.facts.spec(), Want: vectors.AuthorizeWant{OneOf: t.firstPhase()}}},
			{Evaluate: &vectors.EvaluateStep{Data: *t.facts.data(), Want: vectors.EvaluateWant{OneOf: []vectors.Decision{t.decide(true)}}}},
		},
	}}, strings.Join(strings.Fields(reason), " "))
	if err != nil {
		return "# the case cannot be written: " + err.Error() + "\n"
	}
	return string(raw)
}
