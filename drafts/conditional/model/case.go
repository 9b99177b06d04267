package model

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

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

// triple is a case: policies, a request, and the data of the second phase.
type triple struct {
	policies []generatedPolicy
	mode     vectors.FailureMode
	facts    *facts
}

// words are the policies as an authorizer loads them.
func (t *triple) words() []vectors.Policy {
	out := make([]vectors.Policy, 0, len(t.policies))
	for i, p := range t.policies {
		out = append(out, vectors.Policy{ID: fmt.Sprintf("p%d", i), Effect: p.effect, Expression: p.expression.String()})
	}
	return out
}

// decide is the decision with everything known, or of what the request alone tells; Conditional if it takes more.
func (t *triple) decide(all bool) vectors.Decision {
	return t.outcome(func(e *expression) []vectors.Truth {
		truth := e.value(t.facts, all)
		if truth == unknown {
			return anything
		}
		return []vectors.Truth{truth}
	})
}

// certain is the decision that an authorizer may be sure of before the second phase, at best: it also knows what
// the verb tells of the objects, and that what is joined to an error can still be decided one way only.
func (t *triple) certain() vectors.Decision {
	return t.outcome(func(e *expression) []vectors.Truth { return e.possible(t.facts) })
}

// firstPhase are the answers of the first phase that are right: what follows from the request alone, and if that
// is Conditional, what is certain nevertheless.
func (t *triple) firstPhase() []vectors.Decision {
	out := []vectors.Decision{t.decide(false)}
	if out[0] == vectors.Conditional {
		if d := t.certain(); d != out[0] {
			out = append(out, d)
		}
	}
	return out
}

// outcome is what the policies decide in every way that their truths allow: Conditional if the ways differ.
func (t *triple) outcome(truths func(*expression) []vectors.Truth) (first vectors.Decision) {
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
	s.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: f.verb, Group: "example.com", Version: "v1", Resource: "things", Name: f.name}
	return s
}

// data is what the second phase is told.
func (f *facts) data() *vectors.ConditionData {
	return &vectors.ConditionData{Operation: f.operation, Object: f.object, OldObject: f.old}
}

// generator makes parts of cases.
type generator struct{ *rand.Rand }

func newGenerator(seed int64, group int) *generator {
	return &generator{rand.New(rand.NewPCG(uint64(seed), uint64(group)))}
}

func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

// longest is how many bytes a policy can have, so that what is left of it fits a condition of every revision of the
// wire, also with what is known written out.
const longest = 512

func (g *generator) policies() (out []generatedPolicy) {
	for n := 1 + g.IntN(4); len(out) < n; {
		e := g.expression(3)
		if len(e.String()) > longest {
			continue
		}
		out = append(out, generatedPolicy{effect: pick(g, vectors.Allow, vectors.Allow, vectors.Deny, vectors.NoOpinion), expression: e})
	}
	return out
}

func (g *generator) expression(depth int) *expression {
	if depth == 0 || g.IntN(5) == 0 {
		if g.IntN(2) == 0 {
			return leaf(pick(g, sureAtoms...))
		}
		return leaf(pick(g, openAtoms...))
	}
	op := pick(g, "&&", "&&", "&&", "||", "||", "!", "?:")
	n := map[string]int{"!": 1, "?:": 3, "&&": 2 + g.IntN(2), "||": 2}[op]
	e := &expression{op: op}
	for range n {
		e.args = append(e.args, g.expression(depth-1))
	}
	return e
}

func (g *generator) request(f *facts) {
	f.user, f.verb = pick(g, "alice", "bob", "eve"), pick(g, "create", "update", "delete")
	f.name = pick(g, "", "gold", "alice")
	f.groups = pick(g, nil, []string{"dev"}, []string{"ops", "dev"}, []string{"ops"})
	f.hasTeam = g.IntN(2) == 0
	f.team = pick(g, "blue", "red")
}

// late fills in the rest, as the verb has it: also an update that becomes a create.
func (g *generator) late(f *facts) {
	f.object, f.old = nil, nil
	switch f.operation = map[string]string{"create": "CREATE", "update": pick(g, "UPDATE", "UPDATE", "CREATE"), "delete": "DELETE"}[f.verb]; f.operation {
	case "CREATE":
		f.object = g.thing()
	case "UPDATE":
		f.object, f.old = g.thing(), g.thing()
	case "DELETE":
		f.old = g.thing()
	}
}

// thing is an object that has some fields, and others not.
func (g *generator) thing() vectors.Object {
	metadata, spec := map[string]any{"name": pick(g, "gold", "alice", "bob", "x")}, map[string]any{}
	o := vectors.Object{"metadata": metadata}
	if g.IntN(10) > 0 {
		o["spec"] = spec
	}
	if g.IntN(4) > 0 {
		spec["class"] = pick(g, "dev", "ops", "gold")
	}
	if replicas := pick[any](g, nil, int64(1), int64(5), "many"); replicas != nil {
		spec["replicas"] = replicas
	}
	if labels := pick(g, nil, map[string]any{}, map[string]any{"env": "dev"}, map[string]any{"env": "prod", "alice": "owner"}, map[string]any{"bob": "owner"}); labels != nil {
		metadata["labels"] = labels
	}
	if finalizers := pick(g, nil, []any{}, []any{"alice"}, []any{"other", "bob"}); finalizers != nil {
		metadata["finalizers"] = finalizers
	}
	return o
}

// shrinkLimit bounds how often a case is tried to find the smallest one.
const shrinkLimit = 100_000

// shrink makes a case smaller as long as it disagrees in whatever way.
func (r *runner) shrink(t *triple, reason string) (*triple, string) {
	best := cases.Smallest(t.clone(), shrinkLimit, (*triple).smaller, func(s *triple) bool {
		again := r.try(s)
		if again != "" {
			reason = again
		}
		return again != ""
	})
	return best, reason
}

func (r *runner) try(t *triple) string {
	loaded, err := r.subject(t.words(), t.mode)
	if err != nil {
		return "" // another problem than the one that is made small
	}
	status, err := r.ask(loaded, *t.facts.spec())
	if err != nil {
		return ""
	}
	return r.judge(t, loaded, status)
}

func (t *triple) clone() *triple {
	f := *t.facts
	return &triple{policies: slices.Clone(t.policies), mode: t.mode, facts: &f}
}

// smaller are cases with less in them.
func (t *triple) smaller() (out []*triple) {
	for i := range t.policies {
		if len(t.policies) > 1 {
			c := t.clone()
			c.policies = slices.Delete(c.policies, i, i+1)
			out = append(out, c)
		}
	}
	for i, p := range t.policies {
		for _, e := range p.expression.smaller() {
			c := t.clone()
			c.policies[i].expression = e
			out = append(out, c)
		}
	}
	less := func(ok bool, change func(*facts)) {
		if ok {
			c := t.clone()
			change(c.facts)
			out = append(out, c)
		}
	}
	less(len(t.facts.groups) > 0, func(f *facts) { f.groups = nil })
	less(t.facts.hasTeam, func(f *facts) { f.hasTeam = false })
	less(t.facts.name != "", func(f *facts) { f.name = "" })
	for _, which := range []func(*facts) *vectors.Object{func(f *facts) *vectors.Object { return &f.object }, func(f *facts) *vectors.Object { return &f.old }} {
		o := *which(t.facts)
		for _, path := range [][]string{{"metadata", "labels"}, {"metadata", "finalizers"}, {"spec", "replicas"}, {"spec", "class"}, {"spec"}} {
			less(holds(o, path...), func(f *facts) {
				smaller := runtime.DeepCopyJSON(o)
				unstructured.RemoveNestedField(smaller, path...)
				*which(f) = smaller
			})
		}
	}
	return out
}

// vector is the case as a vector file, with what is right.
func (t *triple) vector(reason string) string {
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
