package conditional

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/conditionstest"
	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// TestConditionalRego has Open Policy Agent hold the policies of conditional certification as Rego: what it knows before the
// objects it decides, what is left of a policy by its partial evaluation is a condition, and is evaluated by it alone.
func TestConditionalRego(t *testing.T) {
	for _, w := range wire.Revisions() {
		t.Run(w.Name, func(t *testing.T) {
			a := &opaAuthorizer{Authorizer: newConcrete(t, w)}
			conditionstest.RunHandler(t, reference.Handler(w, a), conditionstest.Options{Seed: 7, Load: a.load})
		})
	}
}

// TestConditionalRegoGenerated compares two phases with one. What is left in Rego is longer than in CEL, since it lists every
// way in which a policy holds or fails: at 1,024 bytes some of it is too long, and the request refused, as it must be. So a
// condition has the 10,240 bytes here that the newest pre-release of Kubernetes allows.
func TestConditionalRegoGenerated(t *testing.T) {
	for _, known := range wire.Revisions() {
		w := *known
		w.Rules.Condition = 10_240
		subject := func(policies []vectors.Policy, mode vectors.FailureMode) (model.Loaded, error) {
			a := &opaAuthorizer{Authorizer: newConcrete(t, &w), mode: mode}
			return a, a.load(policies)
		}
		found, err := model.Explore(t.Context(), subject, model.Exploration{Wire: &w, Cases: 2000, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("wire %s: %d cases, first phase %v, in the end %v", w.Name, found.Cases, found.ByAnswer, found.ByDecision)
		for _, d := range found.Disagreements {
			t.Errorf("wire %s, case %d: %s\n%s", w.Name, d.Case, d.Reason, d.Vector)
		}
	}
}

// newConcrete writes answers down, and holds no policies.
func newConcrete(t testing.TB, w *wire.Revision) *reference.Authorizer {
	t.Helper()
	none, err := reference.NewSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := reference.New(w, none)
	a.Type = "authzconf.dev/rego"
	return a
}

// opaAuthorizer answers both reviews.
type opaAuthorizer struct {
	*reference.Authorizer
	mode     vectors.FailureMode
	policies []vectors.Policy
	compiler *ast.Compiler
}

func (a *opaAuthorizer) load(all []vectors.Policy) error {
	raw, err := certification.Export("rego", all)
	if err != nil {
		return err
	}
	if _, what, left := strings.Cut(string(raw), "this cannot be said: "); left {
		return fmt.Errorf("a policy is left out: %.80s of %v", what, all)
	}
	a.compiler, err = ast.CompileModules(map[string]string{"policy.rego": string(raw)})
	a.policies = all
	return err
}

// Review is the first phase.
func (a *opaAuthorizer) Review(spec vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	if spec.Groups == nil {
		spec.Groups = []string{} // an empty list, and not null
	}
	input := map[string]any{vectors.RequestVariable: vectors.RequestFields(spec.SubjectAccessReviewSpec)}
	known, err := a.sides(input)
	if err != nil {
		return vectors.SubjectAccessReviewStatus{Denied: true, EvaluationError: err.Error()}
	}
	d := reference.FirstPhase{Concrete: vectors.NoOpinion}
	applies := map[vectors.Decision]string{}
	failed := map[vectors.Decision]error{}
	open := map[vectors.Decision][]vectors.Condition{}
	for _, p := range a.policies {
		switch {
		case slices.Contains(known["holds"], p.ID):
			applies[p.Effect] = p.ID
		case slices.Contains(known["fails"], p.ID):
		default:
			left, err := a.residual(p.ID, input)
			if err == nil && left.Holds == nil && left.Fails == nil {
				err = fmt.Errorf("policy %s: it is in error", p.ID)
			}
			if err != nil {
				failed[p.Effect] = err
			} else if p.Effect != vectors.Allow || left.Holds != nil {
				text, _ := json.Marshal(left)
				open[p.Effect] = append(open[p.Effect],
					vectors.Condition{ID: p.ID, Effect: p.Effect, Condition: string(text), Description: p.Description},
				)
			}
		}
	}
	d.Err = errors.Join(failed[vectors.Deny], failed[vectors.NoOpinion], failed[vectors.Allow])
	deny, soft := open[vectors.Deny], open[vectors.NoOpinion]
	softly := applies[vectors.NoOpinion] != "" || failed[vectors.NoOpinion] != nil ||
		failed[vectors.Deny] != nil && a.mode == vectors.FailNoOpinion
	switch {
	case applies[vectors.Deny] != "" ||
		failed[vectors.Deny] != nil && a.mode != vectors.FailNoOpinion:
		d.Concrete = vectors.Deny
	case softly:
		d.Conditions = deny
	case applies[vectors.Allow] != "" && len(deny)+len(soft) == 0:
		d.Concrete = vectors.Allow
	case applies[vectors.Allow] != "":
		always := vectors.Condition{ID: applies[vectors.Allow], Effect: vectors.Allow, Condition: `{"holds":["true"]}`}
		d.Conditions = slices.Concat(deny, soft, []vectors.Condition{always})
	case len(open[vectors.Allow]) > 0:
		d.Conditions = slices.Concat(deny, soft, open[vectors.Allow])
	default:
		d.Conditions = deny
	}
	status := a.Status(d, spec)
	for i := range status.ConditionsChain {
		if a.mode != "" {
			status.ConditionsChain[i].FailureMode = a.mode
		}
	}
	return status
}

// sides are the policies that hold, and those that fail, with what the input has.
func (a *opaAuthorizer) sides(input map[string]any) (map[string][]string, error) {
	const query = `x := {"holds": data.authzconf.conditional.holds, "fails": data.authzconf.conditional.fails}`
	out := map[string][]string{}
	got, err := rego.New(rego.Query(query), rego.Compiler(a.compiler), rego.Input(input)).Eval(context.Background())
	if err == nil && len(got) == 1 {
		raw, _ := json.Marshal(got[0].Bindings["x"])
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

// left is what is left of a policy: queries, of which one has to have a result. Partial evaluation does not look at what is to
// hold of every element of a list, so the request goes with such a query.
type left struct {
	Request any      `json:"request,omitempty"`
	Holds   []string `json:"holds,omitempty"`
	Fails   []string `json:"fails,omitempty"`
}

func (a *opaAuthorizer) residual(id string, input map[string]any) (out left, err error) {
	var unknown []string
	for _, name := range vectors.LateVariables() {
		unknown = append(unknown, "input."+name)
	}
	for side, queries := range map[string]*[]string{"holds": &out.Holds, "fails": &out.Fails} {
		got, err := rego.New(rego.Query(fmt.Sprintf("data.authzconf.conditional.%s[%q]", side, id)), rego.Compiler(a.compiler), rego.Input(input), rego.Unknowns(unknown)).
			Partial(context.Background())
		if err != nil {
			return out, err
		}
		if len(got.Support) > 0 {
			return out, fmt.Errorf("policy %s: what is left needs rules of its own: %v", id, got.Support)
		}
		for _, q := range got.Queries {
			*queries = append(*queries, q.String())
			if strings.Contains(q.String(), "input."+vectors.RequestVariable) {
				out.Request = input[vectors.RequestVariable]
			}
		}
	}
	return out, nil
}

// Evaluate is the second phase. It looks at what it is handed and at no policy.
func (a *opaAuthorizer) Evaluate(q *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	for _, set := range q.ConditionSets {
		effect, reason, err := reference.EvaluateSet(set, func(c vectors.Condition) (bool, error) {
			if c.Type != a.Type {
				return false, fmt.Errorf("type %q: this authorizer evaluates %q", c.Type, a.Type)
			}
			return opaHolds(c.Condition, q.ConditionData.Variables())
		})
		out := vectors.AuthorizationConditionsResponse{Allowed: effect == vectors.Allow, Denied: effect == vectors.Deny, Reason: reason}
		if err != nil {
			out.EvaluationError = err.Error()
		}
		return out
	}
	return vectors.AuthorizationConditionsResponse{Denied: true}
}

func opaHolds(text string, input map[string]any) (bool, error) {
	var l left
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return false, err
	}
	input[vectors.RequestVariable] = l.Request
	for truth, queries := range map[bool][]string{true: l.Holds, false: l.Fails} {
		for _, q := range queries {
			got, err := rego.New(rego.Query(q), rego.Input(input)).Eval(context.Background())
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(got, func(r rego.Result) bool {
				return !slices.ContainsFunc(r.Expressions, func(e *rego.ExpressionValue) bool { return e.Value == false })
			}) {
				return truth, nil
			}
		}
	}
	return false, errors.New("it is in error")
}
