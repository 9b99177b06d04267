package conditional

import (
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// TestConditionalCedar has Cedar decide about everything at once: for each vector whose policies can be said, what the two
// phases together have to come to.
func TestConditionalCedar(t *testing.T) {
	all, err := vectors.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	asked, left := 0, 0
	for _, v := range all {
		w := v.Webhook
		if w == nil || w.FailureMode != vectors.FailDeny || slices.ContainsFunc(w.Steps, func(s vectors.Step) bool { return s.SetPolicies != nil }) {
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
		policies, err := cedar.NewPolicySetFromBytes("policies.cedar", text)
		if err != nil {
			t.Fatalf("%s: %v\n%s", v.ID, err, text)
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
			context := s.Evaluate.Data.Variables()
			context[vectors.RequestVariable] = vectors.RequestFields(first.Spec.SubjectAccessReviewSpec)
			asked++
			if got := cedarDecides(policies, context); !slices.Contains(want, got) {
				t.Errorf("%s, step %d: Cedar decides %s, want %s\n%s", v.ID, i, got, want, text)
			}
		}
	}
	t.Logf("%d evaluations; of %d vectors a policy cannot be said", asked, left)
	if asked < 100 {
		t.Errorf("only %d evaluations", asked)
	}
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
