package certification

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// stateful returns authorizers that keep state which belongs into their answers. Nobody can see that as long as there
// is only one replica.
func stateful() []faulty {
	return []faulty{
		{ID: "remembers-conditions", Description: "conditions are evaluated only by who has given them", Finding: "replicas-differ", make: func(a *reference.Authorizer) http.Handler {
			var given sync.Map
			key := func(sets []vectors.ConditionSet) string {
				raw, _ := json.Marshal(sets)
				return string(raw)
			}
			return reference.Handler(a.Wire, phases{Authorizer: a, first: func(s spec) status {
				st := a.Review(s)
				given.Store(key(st.ConditionsChain), true)
				return st
			}, second: func(r *request) response {
				if _, ok := given.Load(key(r.ConditionSets)); !ok {
					return response{Denied: true, Reason: "nobody has given these conditions"}
				}
				return a.Evaluate(r)
			}})
		}},
		{ID: "names-of-its-own", Description: "conditions have IDs of the process", Finding: "replicas-differ", make: func(a *reference.Authorizer) http.Handler {
			process := strings.ToLower(rand.Text()[:8])
			return reference.Handler(a.Wire, phases{Authorizer: a, first: func(s spec) status {
				st := a.Review(s)
				for i := range st.ConditionsChain {
					for k := range st.ConditionsChain[i].Conditions {
						st.ConditionsChain[i].Conditions[k].ID += process
					}
				}
				return st
			}})
		}},
	}
}

// intoAll returns a loader that loads policies into several authorizers.
func intoAll(all ...*reference.Authorizer) Loader {
	return func(ctx context.Context, policies []vectors.Policy) (err error) {
		for _, a := range all {
			err = errors.Join(err, into(a)(ctx, policies))
		}
		return err
	}
}

// TestReplicas checks that a replica of the reference can evaluate the conditions of another, because the reference
// keeps no state. An authorizer that keeps state is granted every level alone, and not together with a replica.
func TestReplicas(t *testing.T) {
	b := plan(t, 4)
	first, second := newReference(t, wire.Newest()), newReference(t, wire.Newest())
	findings, results := run(t, b, reference.Handler(first.Wire, first), intoAll(first, second), reference.Handler(second.Wire, second))
	if len(findings) > 0 || slices.ContainsFunc(results, func(r Result) bool { return !r.Granted }) {
		t.Errorf("two of the reference: %v, %+v", findings, results)
	}
	for _, f := range stateful() {
		t.Run(f.ID, func(t *testing.T) {
			a, other := newReference(t, wire.Newest()), newReference(t, wire.Newest())
			if findings, _ := run(t, b, f.Handler(a), into(a)); len(findings) > 0 {
				t.Errorf("alone it is found out: %v", findings)
			}
			findings, results := run(t, b, f.Handler(a), intoAll(a, other), f.Handler(other))
			if !slices.ContainsFunc(findings, func(one certify.Finding) bool { return one.Reason == f.Finding && !one.Advice }) {
				t.Errorf("it is not rejected for %s: %v", f.Finding, findings)
			}
			if !slices.ContainsFunc(results, func(r Result) bool { return !r.Granted }) {
				t.Errorf("every level is granted: %+v", results)
			}
		})
	}
	t.Run("one without the endpoint for conditions", func(t *testing.T) {
		a, other := newReference(t, wire.Newest()), newReference(t, wire.Newest())
		withoutEndpoint := http.NewServeMux()
		withoutEndpoint.Handle("/", reference.Handler(other.Wire, other))
		withoutEndpoint.Handle(reference.ConditionsPath, http.NotFoundHandler())
		findings, results := run(t, b, reference.Handler(a.Wire, a), intoAll(a, other), withoutEndpoint)
		if slices.ContainsFunc(results, func(r Result) bool { return r.Granted && r.Level == Phases }) {
			t.Errorf("phases is granted: %+v", results)
		}
		for _, f := range findings {
			if f.Reason != "http-status" {
				t.Errorf("%s: %v", f.Reason, f.Examples)
			}
		}
	})
	t.Run("one that is not there", func(t *testing.T) {
		a := newReference(t, wire.Newest())
		_, results := run(t, b, reference.Handler(a.Wire, a), into(a), http.NotFoundHandler())
		if slices.ContainsFunc(results, func(r Result) bool { return r.Granted }) {
			t.Errorf("a level is granted: %+v", results)
		}
	})
}

// TestReplicaIsNotLeftOut checks that evidence with one answer of a replica must have all answers of that replica.
func TestReplicaIsNotLeftOut(t *testing.T) {
	b, a, other := plan(t, 5), newReference(t, wire.Newest()), newReference(t, wire.Newest())
	both := append(served(t, reference.Handler(a.Wire, a)), served(t, reference.Handler(other.Wire, other))...)
	done, err := Certify(t.Context(), Options{Plan: b, Load: intoAll(a, other), Webhooks: both})
	if err != nil {
		t.Fatal(err)
	}
	if done.Mode != "conditional, with a second replica" {
		t.Errorf("the certification is %q", done.Mode)
	}
	at := slices.IndexFunc(done.Answers, func(x Exchange) bool { return x.Variant == Replica })
	if at < 0 {
		t.Fatal("the replica was not asked")
	}
	c, err := b.Judge(slices.Delete(slices.Clone(done.Answers), at, at+1))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(c.Results, func(r Result) bool { return !r.Granted }) {
		t.Error("an answer of the replica is left out, and all levels are granted")
	}
}
