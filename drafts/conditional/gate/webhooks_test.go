package gate

import (
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// TestConditions checks that a caller who sends back other sets than were answered gets an error, and that an event
// records it.
func TestConditions(t *testing.T) {
	set := func(condition string) []vectors.ConditionSet {
		return []vectors.ConditionSet{{AuthorizerName: "a0", FailureMode: vectors.FailDeny, Conditions: []vectors.Condition{{ID: "a", Effect: vectors.Allow, Type: "example.com/t", Condition: condition}}}}
	}
	of := func(name string) vectors.Object { return vectors.Object{"metadata": map[string]any{"name": name}} }
	v := parsed(t, lazily)[0].APIServer
	for _, c := range []struct {
		name, event string
		sent        []vectors.ConditionSet
		object      vectors.Object
		answered    bool
	}{
		{"as they were answered", "evaluates a0", set("x"), of("vector-1-0"), true},
		{"about another object", "evaluates a0 for object 2", set("x"), of("vector-1-2"), true},
		{"about an object of nobody", "evaluates a0 for object -1", set("x"), of("other"), true},
		{"about none", "evaluates a0 for object -1", set("x"), nil, true},
		{"changed", "evaluates what nobody has answered", set("y"), of("vector-1-0"), false},
		{"twice", "evaluates what nobody has answered", append(set("x"), set("x")...), of("vector-1-0"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &webhooks{
				wire: wire.Seed,
				now: &script{
					user:         "u",
					verb:         "create",
					object:       "vector-1",
					chain:        v.Chain,
					answeredSets: map[string][]vectors.ConditionSet{},
				},
			}
			asks := vectors.SubjectAccessReviewSpec{
				ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Optimized},
			}
			asks.User, asks.ResourceAttributes = "u", &authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps"}
			review, err := w.wire.AskAccess(asks)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.access(w.now, placeOf(0, vectors.FailDeny), review); err != nil {
				t.Fatal(err)
			}
			body, err := w.wire.AskConditions(
				vectors.AuthorizationConditionsRequest{
					ConditionSets: c.sent,
					ConditionData: vectors.ConditionData{Operation: "CREATE", Object: c.object},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.conditions(w.now, placeOf(0, vectors.FailDeny), body)
			if want := []string{"asked a0", c.event}; !slices.Equal(w.now.events, want) || (err == nil) != c.answered {
				t.Errorf("%v, %v; want %v, answered %t", w.now.events, err, want, c.answered)
			}
		})
	}
}

// TestNumberOf checks that exactly the objects that admission has for an operation must be there.
func TestNumberOf(t *testing.T) {
	o := vectors.Object{"metadata": map[string]any{"name": "vector-1-2"}}
	for _, c := range []struct {
		data vectors.ConditionData
		want int
	}{
		{vectors.ConditionData{Operation: "CREATE", Object: o}, 2},
		{vectors.ConditionData{Operation: "UPDATE", Object: o, OldObject: o}, 2},
		{vectors.ConditionData{Operation: "DELETE", OldObject: o}, 2},
		{vectors.ConditionData{Operation: "CONNECT", Object: vectors.Object{"kind": "PodExecOptions"}}, 0},
		{vectors.ConditionData{Operation: "CREATE", Object: o, OldObject: o}, -1},
		{vectors.ConditionData{Operation: "UPDATE", Object: o}, -1},
		{vectors.ConditionData{Operation: "DELETE", Object: o}, -1},
		{vectors.ConditionData{Operation: "CONNECT", Object: o, Options: o}, -1},
		{vectors.ConditionData{Object: o}, -1},
	} {
		if got := numberOf("vector-1", c.data); got != c.want {
			t.Errorf("%+v: %d, want %d", c.data, got, c.want)
		}
	}
}
