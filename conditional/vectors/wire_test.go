package vectors

import (
	"encoding/json"
	"strings"
	"testing"
)

func valid() Condition {
	return Condition{ID: "a", Effect: Allow, Type: "example.com/t", Condition: "x"}
}

func chain(all ...Condition) SubjectAccessReviewStatus {
	return SubjectAccessReviewStatus{ConditionsChain: []ConditionSet{{AuthorizerName: "n", FailureMode: FailDeny, Conditions: all}}}
}

func TestValidate(t *testing.T) {
	with := func(change func(*Condition)) Condition {
		c := valid()
		change(&c)
		return c
	}
	many := make([]Condition, MaxConditions+1)
	for i := range many {
		many[i] = with(func(c *Condition) { c.ID = "a" + strings.Repeat("b", i%60) })
	}
	both := chain(valid())
	both.Allowed = true
	for _, c := range []struct {
		name  string
		s     SubjectAccessReviewStatus
		asked Mode
		wrong string
	}{
		{"good", chain(valid()), Optimized, ""},
		{"concrete", SubjectAccessReviewStatus{Allowed: true}, None, ""},
		{"not asked for", chain(valid()), None, "conditions-not-asked-for"},
		{"both", SubjectAccessReviewStatus{Allowed: true, Denied: true}, None, "at once"},
		{"beside", both, Optimized, "beside"},
		{"empty", SubjectAccessReviewStatus{ConditionsChain: []ConditionSet{}}, Optimized, "empty-chain"},
		{"concrete chain", SubjectAccessReviewStatus{ConditionsChain: []ConditionSet{{AuthorizerName: "n", Allowed: true}}}, Optimized, "concrete"},
		{"twice", chain(valid(), valid()), Optimized, "twice"},
		{"effect", chain(with(func(c *Condition) { c.Effect = "Maybe" })), Optimized, "effect"},
		{"reserved", chain(with(func(c *Condition) { c.ID = "k8s.io/a" })), Optimized, `the ID "k8s.io/a"`},
		{"ID", chain(with(func(c *Condition) { c.ID = "a b" })), Optimized, "invalid-id"},
		{"type", chain(with(func(c *Condition) { c.Type = "" })), Optimized, "type"},
		{"as long as can be", chain(with(func(c *Condition) { c.Condition = strings.Repeat("x", MaxCondition) })), Optimized, ""},
		{"too long", chain(with(func(c *Condition) { c.Condition = strings.Repeat("x", MaxCondition+1) })), Optimized, "1025 bytes"},
		{"no condition", chain(with(func(c *Condition) { c.Condition = "" })), Optimized, "empty"},
		{"too many", chain(many...), Optimized, "129 conditions"},
	} {
		err := c.s.Validate(c.asked)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
	}
}

// TestJSON holds the names of the KEP.
func TestJSON(t *testing.T) {
	raw, err := AnswerAccess(chain(valid()))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":false,"conditionsChain":[{"failureMode":"Deny","authorizerName":"n","conditions":[{"id":"a","effect":"Allow","type":"example.com/t","condition":"x"}]}]}}`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	raw, err = AnswerConditions(AuthorizationConditionsResponse{Denied: true, Reason: "r"})
	if err != nil || string(raw) != `{"kind":"AuthorizationConditionsReview","apiVersion":"authorization.k8s.io/v1alpha1","response":{"allowed":false,"denied":true,"reason":"r"}}` {
		t.Errorf("%s, %v", raw, err)
	}
	spec, err := DecodeAccess([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","resourceAttributes":{"verb":"get"},"conditionalAuthorization":{"mode":"Optimized"},"tomorrow":1}}`))
	if err != nil || spec.Mode() != Optimized || spec.User != "u" {
		t.Errorf("%+v, %v", spec, err)
	}
	spec, err = DecodeAccess([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","resourceAttributes":{},"conditionalAuthorization":{"mode":"Tomorrow"}}}`))
	if err != nil || spec.Mode() != None {
		t.Errorf("an unknown mode: %+v, %v", spec, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"u","resourceAttributes":{}}}`))
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","request":{"conditionSets":[{"authorizerName":"a"}],"object":{}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if spec, err := DecodeAccess(body); err == nil {
			if _, err := json.Marshal(spec); err != nil {
				t.Error(err)
			}
		}
		if req, err := DecodeConditions(body); err == nil {
			for _, s := range req.ConditionSets {
				_ = s.Validate()
			}
		}
	})
}
