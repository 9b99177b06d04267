package certification

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports/record"
)

// TestEachRuleOfFormIsJudged breaks each rule about the form of an answer once.
func TestEachRuleOfFormIsJudged(t *testing.T) {
	b := planOfTwoSteps(t)
	const head, second = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":`, `{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview","response":`
	chain := func(c string) string {
		return head + `{"conditionsChain":[{"authorizerName":"n","failureMode":"Deny","conditions":[` + c + `]}]}}`
	}
	const good = `{"id":"a","effect":"Allow","type":"example.com/t","condition":"x"}`
	for i, c := range []struct {
		x    Exchange
		want string
	}{
		{Exchange{Answer: json.RawMessage(chain(good))}, ""},
		{Exchange{Answer: json.RawMessage(chain(good + "," + good))}, "duplicate-ids"},
		{Exchange{Answer: json.RawMessage(chain(`{"id":"k8s.io/a","effect":"Allow","type":"t","condition":"x"}`))}, "invalid-id"},
		{Exchange{Answer: json.RawMessage(chain(`{"id":"a","effect":"Maybe","type":"t","condition":"x"}`))}, "unknown-effect"},
		{Exchange{Answer: json.RawMessage(chain(`{"id":"a","effect":"Allow","condition":"x"}`))}, "invalid-type"},
		{Exchange{Answer: json.RawMessage(chain(""))}, "set-of-no-kind"},
		{Exchange{Answer: json.RawMessage(head + `{"conditionsChain":[]}}`)}, "empty-chain"},
		{Exchange{Answer: json.RawMessage(head + `{"allowed":true,"denied":true}}`)}, "allowed-and-denied"},
		{Exchange{Answer: json.RawMessage(head + `{"allowed":true}}`)}, "v"},
		{Exchange{Answer: json.RawMessage(chain(good)), Variant: Unaware}, "conditions-not-asked-for"},
		{Exchange{Answer: json.RawMessage(head + `{"allowed":true}}`), Variant: Unaware}, "allows-without-conditions"},
		{Exchange{Answer: json.RawMessage(strings.ReplaceAll(chain(good), `"allowed"`, `"a"`)), Wire: "merged"}, "another-revision"},
		{Exchange{Answer: json.RawMessage(head + `{"conditionSetChain":[]}}`)}, "another-revision"},
		{Exchange{Answer: json.RawMessage(head + `{"conditionSetChain":[],"conditionsChain":[]}}`)}, "several-revisions"},
		{Exchange{Answer: json.RawMessage(chain(strings.Replace(good, `"x"`, `"`+strings.Repeat("x", 1025)+`"`, 1)))}, "condition-too-long"},
		{Exchange{Answer: json.RawMessage(head + merged(`"conditionsType":"t","conditions":[{"id":"a","effect":"Allow","condition":"x"}]`) + `}`), Wire: "merged"}, ""},
		{Exchange{Answer: json.RawMessage(head + merged(`"denied":true,"conditionsType":"t"`) + `}`), Wire: "merged"}, "answer-unreadable"},
		{Exchange{Answer: json.RawMessage(head + nested(1000) + `}`), Wire: "merged"}, "nested-too-deep"},
		{Exchange{Step: 1, Wire: "merged", Answer: json.RawMessage(second + nested(2) + `}`)}, "v"},
		{Exchange{Answer: json.RawMessage(`[]`)}, "answer-unreadable"},
		{Exchange{Answer: json.RawMessage(second + `{}}`)}, "wrong-kind"},
		{Exchange{HTTP: 500}, "http-status"},
		{Exchange{Fault: "cannot-connect"}, "cannot-connect"},
		{Exchange{Step: 1, Answer: json.RawMessage(second + `{"allowed":true}}`)}, ""},
		{Exchange{Step: 1, Answer: json.RawMessage(second + `{"denied":true}}`)}, "v"},
		{Exchange{Step: 1, Answer: json.RawMessage(second + `{"allowed":true,"denied":true}}`)}, "allowed-and-denied"},
		{Exchange{Step: 1, Answer: json.RawMessage(`{"apiVersion":"authorization.k8s.io/v1alpha1","kind":"AuthorizationConditionsReview"}`)}, "no-response"},
		{Exchange{Step: 1, Variant: Foreign, Answer: json.RawMessage(second + `{"allowed":true}}`)}, "unknown-type-evaluated"},
		{Exchange{Step: 1, Variant: Foreign, HTTP: 400}, ""},
	} {
		t.Run(fmt.Sprintf("%d %s", i, cmp.Or(c.want, "right")), func(t *testing.T) {
			c.x.Vector = "v"
			c.x.HTTP = cmp.Or(c.x.HTTP, 200)
			judged, err := b.Judge([]Exchange{c.x})
			if err != nil {
				t.Fatal(err)
			}
			reasons := seq.Map(judged.Findings, func(f certify.Finding) string { return f.Reason })
			if c.want == "" {
				if len(reasons) > 0 {
					t.Errorf("%s: %v, want nothing", c.x.Answer, reasons)
				}
				return
			}
			if !slices.Contains(reasons, c.want) {
				t.Errorf("%s: %v, want %q", c.x.Answer, reasons, c.want)
			}
			if judged.Results[0].Granted {
				t.Errorf("%s: granted", c.x.Answer)
			}
		})
	}
}

// planOfTwoSteps returns a plan with one vector, whose policy is asked about in both phases.
func planOfTwoSteps(t *testing.T) *Plan {
	t.Helper()
	b, err := NewPlan([]*vectors.Vector{{ID: "v", Level: vectors.Must, Webhook: &vectors.Webhook{
		Policies: []vectors.Policy{{ID: "a", Effect: vectors.Allow, Expression: "object.a"}},
		Steps: []vectors.Step{
			{Authorize: &vectors.AuthorizeStep{Spec: vectors.SubjectAccessReviewSpec{ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Optimized}}, Want: vectors.AuthorizeWant{OneOf: []vectors.Decision{vectors.Conditional}}}},
			{Evaluate: &vectors.EvaluateStep{Want: vectors.EvaluateWant{OneOf: []vectors.Decision{vectors.Allow}}}},
		},
	}}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOtherEvidenceIsNotJudged checks that exchanges of two revisions and of other vectors are refused, and that nothing
// is granted if nothing was asked.
func TestOtherEvidenceIsNotJudged(t *testing.T) {
	b := planOfTwoSteps(t)
	if _, err := b.Judge([]Exchange{{Vector: "v", HTTP: 500}, {Vector: "v", HTTP: 500, Wire: "merged"}}); err == nil {
		t.Error("evidence of two revisions is judged")
	}
	if _, err := b.Judge([]Exchange{{Vector: "other"}}); err == nil {
		t.Error("evidence about another vector is judged")
	}
	if judged, err := b.Judge(nil); err != nil || judged.Results[0].Granted {
		t.Errorf("nothing asked: %+v, %v", judged, err)
	}
}

// merged is a status with one set, in the merged revision.
func merged(of string) string {
	return `{"conditionSetChain":[{"authorizerName":"n","failureMode":"Deny",` + of + `}]}`
}

// nested returns sets that are nested to a depth.
func nested(deep int) string {
	out := `"conditionsType":"t","conditions":[{"id":"a","effect":"Allow","condition":"x"}]`
	for range deep {
		out = strings.TrimSuffix(strings.TrimPrefix(merged(out), "{"), "}")
	}
	return "{" + out + "}"
}

func FuzzParseEvidence(f *testing.F) {
	f.Add([]byte(`[{"vector":"v","step":0,"http":200,"answer":{"kind":"SubjectAccessReview"}}]`))
	b, err := NewPlan(nil, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if all, err := readExchanges(raw); err == nil && len(all) > 0 {
			if _, err := b.Judge(all); err == nil {
				t.Error("evidence about vectors that are not there is judged")
			}
		}
	})
}

func readExchanges(raw []byte) (all []Exchange, err error) {
	return all, record.DecodeStrictly(raw, &all)
}
