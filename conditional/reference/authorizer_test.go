package reference

import (
	"sync"
	"testing"

	"github.com/authzconf/authzconf/conditional/review"
)

func snapshot(t *testing.T, policies ...Policy) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(policies)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func asking() review.SubjectAccessReviewSpec {
	return review.SubjectAccessReviewSpec{
		SubjectAccessReviewSpec:  update("alice"),
		ConditionalAuthorization: &review.ConditionalAuthorizationConfiguration{Mode: review.HumanReadable},
	}
}

// TestDecisionsAreOfOneSnapshot: policies change all the time, of which either two
// allow on a condition or two deny; no decision mixes them, and the conditions of
// each come to what their own snapshot says.
func TestDecisionsAreOfOneSnapshot(t *testing.T) {
	one := snapshot(t, Policy{ID: "a1", Effect: review.Allow, Expression: `object.v == 1`}, Policy{ID: "a2", Effect: review.Allow, Expression: `object.v == 2`})
	two := snapshot(t, Policy{ID: "d1", Effect: review.Deny, Expression: `object.v == 1`}, Policy{ID: "d2", Effect: review.Deny, Expression: `object.v == 2`})
	a := New(one)
	stop := make(chan struct{})
	var changing, asked sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				a.Use([]*Snapshot{one, two}[i%2])
			}
		}
	})
	for range 4 {
		asked.Go(func() {
			for range 100 {
				st := a.Review(asking())
				if len(st.ConditionsChain) != 1 || len(st.ConditionsChain[0].Conditions) != 2 {
					t.Errorf("%+v", st)
					return
				}
				set := st.ConditionsChain[0]
				got := a.Evaluate(&review.AuthorizationConditionsRequest{ConditionSets: st.ConditionsChain, ConditionData: review.ConditionData{Object: review.Object{"v": int64(2)}}})
				if set.Conditions[0].Effect != set.Conditions[1].Effect || got.Allowed != (set.Conditions[0].Effect == review.Allow) || got.Denied == got.Allowed {
					t.Errorf("%+v of %+v", got, set)
					return
				}
			}
		})
	}
	asked.Wait()
	close(stop)
	changing.Wait()
}

func TestFailsClosed(t *testing.T) {
	a := New(snapshot(t, Policy{ID: "a", Effect: review.Allow, Expression: `object.v == 1`, Description: "of version one"}))
	chain := a.Review(asking()).ConditionsChain
	if chain[0].Conditions[0].Description == "" {
		t.Error("a condition for people has no description")
	}
	optimized := asking()
	optimized.ConditionalAuthorization.Mode = review.Optimized
	if c := a.Review(optimized).ConditionsChain; c[0].Conditions[0].Description != "" {
		t.Error("a condition for programs has a description")
	}
	wild := asking()
	r := *wild.ResourceAttributes
	r.Resource, wild.ResourceAttributes = "*", &r
	if st := a.Review(wild); st.ConditionsChain != nil || st.Allowed {
		t.Errorf("a wildcard: %+v", st)
	}
	evaluate := func(change func(*review.ConditionSet)) review.AuthorizationConditionsResponse {
		set := chain[0]
		set.Conditions = append([]review.Condition{}, set.Conditions...)
		change(&set)
		return a.Evaluate(&review.AuthorizationConditionsRequest{ConditionSets: []review.ConditionSet{set}, ConditionData: review.ConditionData{Object: review.Object{"v": int64(1)}}})
	}
	if !evaluate(func(*review.ConditionSet) {}).Allowed {
		t.Error("control: it is not allowed")
	}
	for name, change := range map[string]func(*review.ConditionSet){
		"another authorizer's": func(s *review.ConditionSet) { s.AuthorizerName = "other" },
		"unknown type":         func(s *review.ConditionSet) { s.Conditions[0].Type = "example.com/other" },
		"unknown effect":       func(s *review.ConditionSet) { s.Conditions[0].Effect = "Maybe" },
		"an ID twice":          func(s *review.ConditionSet) { s.Conditions = append(s.Conditions, s.Conditions[0]) },
		"no CEL":               func(s *review.ConditionSet) { s.Conditions[0].Condition = "object ==" },
		"denied as well":       func(s *review.ConditionSet) { s.Denied = true },
	} {
		if got := evaluate(change); got.Allowed || got.EvaluationError == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
