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
		if c.wrong == "" && err != nil ||
			c.wrong != "" &&
				(err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
	}
}

// unionRules are the rules of a revision whose conditional answers are one decision.
var unionRules = Rules{
	Chain:       "conditionalDecision",
	Condition:   10240,
	Description: 1024,
	Conditions:  MaxConditions,
	Depth:       16,
	Qualified:   true,
	Optional:    true,
	Union:       true,
}

func TestUnionRules(t *testing.T) {
	allow := func(change func(*Condition)) ConditionSet {
		c := Condition{ID: "example.com/a", Effect: Allow}
		change(&c)
		return ConditionSet{Conditions: []Condition{c}}
	}
	named := func(name string, s ConditionSet) ConditionSet {
		s.AuthorizerName = name
		return s
	}
	good := allow(func(*Condition) {})
	for name, c := range map[string]struct {
		chain []ConditionSet
		want  string
	}{
		"alone":                  {[]ConditionSet{good}, ""},
		"a union":                {[]ConditionSet{named("a", ConditionSet{}), named("b.example.com", good), named("c", ConditionSet{Denied: true})}, ""},
		"a name twice":           {[]ConditionSet{named("a", good), named("a", good)}, "duplicate-authorizers"},
		"twice further down":     {[]ConditionSet{named("a", ConditionSet{ConditionsChain: []ConditionSet{named("b", good), named("b", good)}})}, "duplicate-authorizers"},
		"one name in two unions": {[]ConditionSet{named("a", ConditionSet{ConditionsChain: []ConditionSet{named("a", good)}})}, ""},
		"no DNS name":            {[]ConditionSet{named("A b", good)}, "invalid-authorizer-name"},
		"two without names":      {[]ConditionSet{good, good}, "no-authorizer-name"},
		"no conditions":          {[]ConditionSet{named("a", ConditionSet{Allowed: true})}, "concrete-chain"},
		"concrete alone":         {[]ConditionSet{{Denied: true}}, "concrete-chain"},
		"nothing but NoOpinion":  {[]ConditionSet{allow(func(c *Condition) { c.Effect = NoOpinion })}, "no-effect"},
		"no domain":              {[]ConditionSet{allow(func(c *Condition) { c.ID = "a" })}, "invalid-id"},
		"a reserved domain":      {[]ConditionSet{allow(func(c *Condition) { c.ID = "x.kubernetes.io/a" })}, "invalid-id"},
		"a domain alike":         {[]ConditionSet{allow(func(c *Condition) { c.ID = "xk8s.io/a" })}, ""},
		"a type without domain":  {[]ConditionSet{allow(func(c *Condition) { c.Type = "cel" })}, "invalid-type"},
		"a type":                 {[]ConditionSet{allow(func(c *Condition) { c.Type = "example.com/cel" })}, ""},
		"a long condition":       {[]ConditionSet{allow(func(c *Condition) { c.Condition = strings.Repeat("x", 10241) })}, "condition-too-long"},
		"a long description":     {[]ConditionSet{allow(func(c *Condition) { c.Description = strings.Repeat("x", 1025) })}, "description-too-long"},
		"as long as they can be": {[]ConditionSet{allow(func(c *Condition) {
			c.Condition, c.Description = strings.Repeat("x", 10240), strings.Repeat("x", 1024)
		})}, ""},
	} {
		err := unionRules.Validate(SubjectAccessReviewStatus{ConditionsChain: c.chain}, Optimized)
		isRight := err == nil
		if c.want != "" {
			isRight = err != nil && strings.HasPrefix(err.Error(), c.want+": ")
		}
		if !isRight {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	beside := SubjectAccessReviewStatus{Reason: "why", ConditionsChain: []ConditionSet{good}}
	if err := unionRules.Validate(beside, Optimized); err == nil || !strings.HasPrefix(err.Error(), "reason-beside-conditions") {
		t.Error(err)
	}
	if err := unionRules.ValidateSet(good); err != nil {
		t.Error(err)
	}
}
