package conditional

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	expast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// cedarQuestion is an evaluation of a vector: policies in Cedar, what is known of it at first and in the end, and what is right.
type cedarQuestion struct {
	name           string
	text           []byte
	request, later map[string]any
	want           []vectors.Decision
}

// cedarQuestions returns the evaluations of all vectors whose policies Cedar can say, and of how many it cannot.
func cedarQuestions(t *testing.T) (questions []cedarQuestion, left int) {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		w := v.Webhook
		if w == nil || w.FailureMode != vectors.FailDeny ||
			slices.ContainsFunc(w.Steps, func(s vectors.Step) bool { return s.SetPolicies != nil }) {
			continue
		}
		text, err := certification.Export("cedar", w.Policies)
		if err != nil {
			t.Fatalf("%s: %v", v.ID, err)
		}
		if strings.Contains(string(text), "this cannot be said") {
			left++
			continue
		}
		for i, s := range w.Steps {
			if s.Evaluate == nil || s.Evaluate.Data.Operation == "" { // which is a stage in which not all is known
				continue
			}
			first := w.FirstPhase(i)
			if first.Spec.Mode() == vectors.None {
				continue
			}
			want := first.Want.OneOf
			if slices.Contains(want, vectors.Conditional) {
				want = s.Evaluate.Want.OneOf
			}
			questions = append(questions, cedarQuestion{
				name: fmt.Sprintf("%s, step %d", v.ID, i), text: text, want: want,
				request: vectors.RequestFields(first.Spec.SubjectAccessReviewSpec), later: laterData(w, i),
			})
		}
	}
	return questions, left
}

// laterData returns everything that is known in an evaluation beside the request, what its earlier stages had included.
func laterData(w *vectors.Webhook, step int) map[string]any {
	data := map[string]any{}
	for ; w.Steps[step].Evaluate != nil; step = w.Steps[step].Evaluate.Of {
		for name, value := range w.Steps[step].Evaluate.Data.Variables() {
			if value != nil {
				data[name] = value
			}
		}
	}
	return data
}

// policies reads the question's policies.
func (q cedarQuestion) policies(t *testing.T) *cedar.PolicySet {
	t.Helper()
	policies, err := cedar.NewPolicySetFromBytes("policies.cedar", q.text)
	if err != nil {
		t.Fatalf("%s: %v\n%s", q.name, err, q.text)
	}
	return policies
}

// TestConditionalCedar has Cedar decide about everything at once: for each vector whose policies can be said, what the two
// phases together have to come to.
func TestConditionalCedar(t *testing.T) {
	questions, left := cedarQuestions(t)
	for _, q := range questions {
		q.later[vectors.RequestVariable] = q.request
		if got := cedarDecides(q.policies(t), q.later); !slices.Contains(q.want, got) {
			t.Errorf("%s: Cedar decides %s, want %s\n%s", q.name, got, q.want, q.text)
		}
	}
	t.Logf("%d evaluations; of %d vectors a policy cannot be said", len(questions), left)
	if len(questions) < 100 {
		t.Errorf("only %d evaluations", len(questions))
	}
}

// TestCedarPartial has Cedar evaluate the policies of the same vectors in two steps: the first knows the request alone, and what
// its partial evaluation leaves of the policies decides in the second, which is not told the request again.
func TestCedarPartial(t *testing.T) {
	questions, _ := cedarQuestions(t)
	undecided, dropped := 0, 0
	for _, q := range questions {
		policies := q.policies(t)
		residual := cedarResidual(policies, q)
		dropped += len(maps.Collect(policies.All())) - len(maps.Collect(residual.All()))
		for id, p := range residual.All() {
			if strings.Contains(string(p.MarshalCedar()), "context") {
				undecided++
			}
			if strings.Contains(string(p.MarshalCedar()), "context."+vectors.RequestVariable) {
				t.Errorf("%s: what is left of %s asks for the request:\n%s", q.name, id, p.MarshalCedar())
			}
		}
		if got := cedarDecides(residual, q.later); !slices.Contains(q.want, got) {
			t.Errorf("%s: in two steps Cedar decides %s, want %s\n%s", q.name, got, q.want, residual.MarshalCedar())
		}
	}
	t.Logf("%d evaluations: %d policies depend on what comes later, %d can never apply", len(questions), undecided, dropped)
	if undecided == 0 || dropped == 0 {
		t.Errorf("%d policies depend on what comes later, %d can never apply: the vectors show nothing", undecided, dropped)
	}
}

// cedarFirstQuestions returns the access reviews of all vectors whose policies Cedar can say that have one right answer.
func cedarFirstQuestions(t *testing.T) (questions []cedarQuestion) {
	t.Helper()
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Webhook == nil || v.Webhook.FailureMode != vectors.FailDeny {
			continue
		}
		text, err := certification.Export("cedar", v.Webhook.Policies)
		if err != nil {
			t.Fatalf("%s: %v", v.ID, err)
		}
		if strings.Contains(string(text), "this cannot be said") {
			continue
		}
		for i, s := range v.Webhook.Steps {
			if s.SetPolicies != nil {
				break // what follows is about other policies
			}
			if s.Authorize == nil || s.Authorize.Spec.Mode() == vectors.None || len(s.Authorize.Want.OneOf) != 1 {
				continue
			}
			q := cedarQuestion{name: fmt.Sprintf("%s, step %d", v.ID, i), text: text, want: s.Authorize.Want.OneOf, later: map[string]any{}}
			q.request = vectors.RequestFields(s.Authorize.Spec.SubjectAccessReviewSpec)
			for _, name := range vectors.LateVariables() {
				q.later[name] = nil
			}
			questions = append(questions, q)
		}
	}
	return questions
}

// cedarKeeps is concrete in CEL, where an error beside true counts for nothing. Cedar's operators do not commute: what is left of
// it may be in error.
const cedarKeeps = "kep-5681/partial/residual-or-true, step 0"

// TestCedarFirstPhase has Cedar decide by what its partial evaluation leaves, when nothing but the request is known: where an
// answer has to be concrete it is what Cedar decides then, and where it has to be conditional a policy is left that depends on
// what comes later. So a permit that holds prunes others, and a forbid that holds prunes all.
func TestCedarFirstPhase(t *testing.T) {
	concrete, conditional := 0, 0
	for _, q := range cedarFirstQuestions(t) {
		residual := cedarResidual(q.policies(t), q)
		left := string(residual.MarshalCedar())
		if q.want[0] == vectors.Conditional || q.name == cedarKeeps {
			conditional++
			if !strings.Contains(left, "context") {
				t.Errorf("%s: nothing is left that depends on what comes later\n%s", q.name, left)
			}
			continue
		}
		concrete++
		if got := cedarDecides(residual, nil); got != q.want[0] {
			t.Errorf("%s: Cedar decides %s at once, want %s\n%s", q.name, got, q.want[0], left)
		}
	}
	t.Logf("%d answers are concrete, %d conditional", concrete, conditional)
	if concrete == 0 || conditional == 0 {
		t.Errorf("%d answers are concrete, %d conditional: the vectors show nothing", concrete, conditional)
	}
}

// cedarResidual returns what is left of policies if the request of a question is known, and of the rest what there will be.
func cedarResidual(policies *cedar.PolicySet, q cedarQuestion) *cedar.PolicySet {
	known := cedar.RecordMap{vectors.RequestVariable: cedarValue(q.request)}
	for name := range q.later {
		known[cedar.String(name)] = eval.Variable(cedar.String(name))
	}
	some := cedar.NewEntityUID("k8s::Any", "some")
	env := eval.Env{Entities: cedar.EntityMap{}, Principal: some, Action: some, Resource: some, Context: cedar.NewRecord(known)}
	residual := cedar.NewPolicySet()
	for id, p := range policies.All() {
		if left, keep := eval.PartialPolicy(env, (*expast.Policy)(p.AST())); keep {
			residual.Add(id, cedar.NewPolicyFromAST((*ast.Policy)(left)))
		}
	}
	return residual
}

// cedarDecides goes by the effects of the policies that apply, as the head of the rendered policies says.
func cedarDecides(policies *cedar.PolicySet, context map[string]any) vectors.Decision {
	some := cedar.NewEntityUID("k8s::Any", "some")
	decision, diagnostic := cedar.Authorize(policies, cedar.EntityMap{}, cedar.Request{
		Principal: some, Action: some, Resource: some, Context: cedarValue(context).(cedar.Record),
	})
	var applies []vectors.Decision
	for _, r := range diagnostic.Reasons {
		applies = append(applies, effect(policies, r.PolicyID))
	}
	for _, e := range diagnostic.Errors {
		if of := effect(policies, e.PolicyID); of != vectors.Allow {
			applies = append(applies, of)
		}
	}
	switch {
	case slices.Contains(applies, vectors.Deny):
		return vectors.Deny
	case slices.Contains(applies, vectors.NoOpinion), decision != cedar.Allow:
		return vectors.NoOpinion
	}
	return vectors.Allow
}

func effect(policies *cedar.PolicySet, id cedar.PolicyID) vectors.Decision {
	return vectors.Decision(policies.Get(id).Annotations()["effect"])
}

// cedarValue is a value without what is null.
func cedarValue(value any) cedar.Value {
	switch v := value.(type) {
	case string:
		return cedar.String(v)
	case bool:
		return cedar.Boolean(v)
	case int64:
		return cedar.Long(v)
	case []string:
		all := make([]any, len(v))
		for i := range v {
			all[i] = v[i]
		}
		return cedarValue(all)
	case []any:
		var out []cedar.Value
		for _, one := range v {
			if c := cedarValue(one); c != nil {
				out = append(out, c)
			}
		}
		return cedar.NewSet(out...)
	case map[string]any:
		out := cedar.RecordMap{}
		for key, one := range v {
			if c := cedarValue(one); c != nil {
				out[cedar.String(key)] = c
			}
		}
		return cedar.NewRecord(out)
	}
	return nil
}
