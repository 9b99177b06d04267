package vectors

import (
	"strings"
	"testing"
)

func valid() Condition {
	return Condition{ID: "a", Effect: Allow, Type: "example.com/t", Condition: "x"}
}

func chain(all ...Condition) SubjectAccessReviewStatus {
	return SubjectAccessReviewStatus{ConditionsChain: []ConditionSet{{AuthorizerName: "n", FailureMode: FailDeny, Conditions: all}}}
}

var rules = Rules{Chain: "conditionsChain", Condition: 1024, Conditions: MaxConditions, Depth: 1}

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
		{"as long as can be", chain(with(func(c *Condition) { c.Condition = strings.Repeat("x", rules.Condition) })), Optimized, ""},
		{"too long", chain(with(func(c *Condition) { c.Condition = strings.Repeat("x", rules.Condition+1) })), Optimized, "1025 bytes"},
		{"no condition", chain(with(func(c *Condition) { c.Condition = "" })), Optimized, "empty"},
		{"nested", SubjectAccessReviewStatus{ConditionsChain: []ConditionSet{{AuthorizerName: "n", ConditionsChain: chain(valid()).ConditionsChain}}}, Optimized, "nested more than 1 deep"},
		{"too many", chain(many...), Optimized, "129 conditions"},
	} {
		err := rules.Validate(c.s, c.asked)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
	}
}
