package reference

import (
	"sync"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

func snapshot(t *testing.T, policies ...vectors.Policy) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(policies)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func asking() vectors.SubjectAccessReviewSpec {
	return vectors.SubjectAccessReviewSpec{
		SubjectAccessReviewSpec:  update("alice"),
		ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.HumanReadable},
	}
}

// TestDecisionsAreOfOneSnapshot checks that no decision mixes policies of two snapshots. The policies change all the
// time between two that allow on a condition and two that deny. The conditions of each answer must be evaluated as its
// own snapshot says.
func TestDecisionsAreOfOneSnapshot(t *testing.T) {
	one := snapshot(
		t,
		vectors.Policy{ID: "a1", Effect: vectors.Allow, Expression: `object.v == 1`},
		vectors.Policy{ID: "a2", Effect: vectors.Allow, Expression: `object.v == 2`},
	)
	two := snapshot(
		t,
		vectors.Policy{ID: "d1", Effect: vectors.Deny, Expression: `object.v == 1`},
		vectors.Policy{ID: "d2", Effect: vectors.Deny, Expression: `object.v == 2`},
	)
	a := New(wire.Seed, one)
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
				got := a.Evaluate(
					&vectors.AuthorizationConditionsRequest{
						ConditionSets: st.ConditionsChain,
						ConditionData: vectors.ConditionData{Object: vectors.Object{"v": int64(2)}},
					},
				)
				if set.Conditions[0].Effect != set.Conditions[1].Effect || got.Allowed != (set.Conditions[0].Effect == vectors.Allow) ||
					got.Denied == got.Allowed {
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
	a := New(
		wire.Seed,
		snapshot(t, vectors.Policy{ID: "a", Effect: vectors.Allow, Expression: `object.v == 1`, Description: "of version one"}),
	)
	chain := a.Review(asking()).ConditionsChain
	if chain[0].Conditions[0].Description == "" {
		t.Error("a condition for people has no description")
	}
	optimized := asking()
	optimized.ConditionalAuthorization.Mode = vectors.Optimized
	if c := a.Review(optimized).ConditionsChain; c[0].Conditions[0].Description != "" {
		t.Error("a condition for programs has a description")
	}
	wild := asking()
	r := *wild.ResourceAttributes
	r.Resource, wild.ResourceAttributes = "*", &r
	if st := a.Review(wild); st.ConditionsChain != nil || st.Allowed {
		t.Errorf("a wildcard: %+v", st)
	}
	evaluate := func(change func(*vectors.ConditionSet)) vectors.AuthorizationConditionsResponse {
		set := chain[0]
		set.Conditions = append([]vectors.Condition{}, set.Conditions...)
		change(&set)
		return a.Evaluate(
			&vectors.AuthorizationConditionsRequest{
				ConditionSets: []vectors.ConditionSet{set},
				ConditionData: vectors.ConditionData{Object: vectors.Object{"v": int64(1)}},
			},
		)
	}
	if !evaluate(func(*vectors.ConditionSet) {}).Allowed {
		t.Error("control: it is not allowed")
	}
	for name, change := range map[string]func(*vectors.ConditionSet){
		"another authorizer's": func(s *vectors.ConditionSet) { s.AuthorizerName = "other" },
		"unknown type":         func(s *vectors.ConditionSet) { s.Conditions[0].Type = "example.com/other" },
		"unknown effect":       func(s *vectors.ConditionSet) { s.Conditions[0].Effect = "Maybe" },
		"an ID twice":          func(s *vectors.ConditionSet) { s.Conditions = append(s.Conditions, s.Conditions[0]) },
		"no CEL":               func(s *vectors.ConditionSet) { s.Conditions[0].Condition = "object ==" },
		"denied as well":       func(s *vectors.ConditionSet) { s.Denied = true },
	} {
		if got := evaluate(change); got.Allowed || got.EvaluationError == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
