package reference_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/conditional/model"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// caseCount is the number of generated cases that TestSubject tries in each revision of the wire. caseSeed is their
// seed.
var (
	caseCount = flag.Int("cases", 4000, "how many generated cases TestSubject tries in each revision of the wire")
	caseSeed  = flag.Int64("case-seed", 1, "the seed of the cases of TestSubject")
)

// TestSubject checks that the two phases of the reference authorizer decide as one phase does.
func TestSubject(t *testing.T) {
	for _, w := range wire.Revisions() {
		t.Run(w.Name, func(t *testing.T) { explored(t, w) })
	}
}

func explored(t *testing.T, w *wire.Revision) {
	t.Helper()
	r, err := model.Explore(t.Context(), reference.Subject(w), model.Exploration{Wire: w, Cases: *caseCount, Seed: *caseSeed})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Disagreements {
		t.Errorf("case %d: %s\n%s", d.Case, d.Reason, d.Vector)
	}
	for _, d := range []vectors.Decision{vectors.Allow, vectors.Deny, vectors.NoOpinion} {
		if r.ByAnswer[d] < 100 || r.ByDecision[d] < 100 {
			t.Errorf("%s came up %d and %d times only", d, r.ByAnswer[d], r.ByDecision[d])
		}
	}
	t.Logf("%d cases: first phase %v, in the end %v, %d disagreements", r.Cases, r.ByAnswer, r.ByDecision, len(r.Disagreements))
	if r.Cases != *caseCount || r.Stopped || r.ByAnswer[vectors.Conditional] < 1000 {
		t.Errorf("%+v", r)
	}
}

// broken is the reference authorizer with a fault in it.
type broken struct {
	authorize func(*vectors.SubjectAccessReviewStatus)
	evaluate  func(*vectors.AuthorizationConditionsRequest, *vectors.AuthorizationConditionsResponse)
	mode      vectors.FailureMode
}

type brokenLoaded struct {
	model.LoadedAuthorizer
	fault broken
}

func (b broken) Load(policies []vectors.Policy, mode vectors.FailureMode) (model.LoadedAuthorizer, error) {
	if b.mode != "" {
		mode = b.mode
	}
	a, err := reference.Subject(wire.Seed)(policies, mode)
	return &brokenLoaded{a, b}, err
}

func (b *brokenLoaded) Review(s vectors.SubjectAccessReviewSpec) vectors.SubjectAccessReviewStatus {
	status := b.LoadedAuthorizer.Review(s)
	if b.fault.authorize != nil {
		b.fault.authorize(&status)
	}
	return status
}

func (b *brokenLoaded) Evaluate(r *vectors.AuthorizationConditionsRequest) vectors.AuthorizationConditionsResponse {
	response := b.LoadedAuthorizer.Evaluate(r)
	if b.fault.evaluate != nil {
		b.fault.evaluate(r, &response)
	}
	return response
}

// without removes the conditions of an effect if other conditions are left.
func without(effect vectors.Decision) func(*vectors.SubjectAccessReviewStatus) {
	return func(s *vectors.SubjectAccessReviewStatus) {
		for i := range s.ConditionsChain {
			var kept []vectors.Condition
			for _, c := range s.ConditionsChain[i].Conditions {
				if c.Effect != effect {
					kept = append(kept, c)
				}
			}
			if len(kept) > 0 {
				s.ConditionsChain[i].Conditions = kept
			}
		}
	}
}

// TestFaultsAreFound checks that every fault is found, and that the case that shows it is made small and can be parsed
// as a vector.
func TestFaultsAreFound(t *testing.T) {
	for name, fault := range map[string]broken{
		"Deny conditions are lost":      {authorize: without(vectors.Deny)},
		"NoOpinion conditions are lost": {authorize: without(vectors.NoOpinion)},
		"Allow conditions are lost":     {authorize: without(vectors.Allow)},
		"errors are no errors": {authorize: func(s *vectors.SubjectAccessReviewStatus) {
			for i := range s.ConditionsChain {
				s.ConditionsChain[i].FailureMode = vectors.FailNoOpinion
			}
		}},
		"the failure mode is always Deny": {mode: vectors.FailDeny},
		"what is certain is conditional": {authorize: func(s *vectors.SubjectAccessReviewStatus) {
			if s.Allowed {
				s.Allowed = false
				s.ConditionsChain = []vectors.ConditionSet{{AuthorizerName: reference.DefaultName, FailureMode: vectors.FailDeny, Conditions: []vectors.Condition{{ID: "a", Effect: vectors.Allow, Type: reference.TypeCEL, Condition: "true"}}}}
			}
		}},
		"what is open is no opinion": {authorize: func(s *vectors.SubjectAccessReviewStatus) { s.ConditionsChain = nil }},
		"what is open is allowed": {authorize: func(s *vectors.SubjectAccessReviewStatus) {
			s.Allowed, s.ConditionsChain = s.Allowed || s.ConditionsChain != nil, nil
		}},
		"an update is taken for an update": {evaluate: func(r *vectors.AuthorizationConditionsRequest, out *vectors.AuthorizationConditionsResponse) {
			if r.Operation == "CREATE" && out.Denied {
				out.Denied = false
			}
		}},
		"conditions beside allowed": {authorize: func(s *vectors.SubjectAccessReviewStatus) { s.Allowed = s.Allowed || s.ConditionsChain != nil }},
		"an ID twice": {authorize: func(s *vectors.SubjectAccessReviewStatus) {
			for i, set := range s.ConditionsChain {
				s.ConditionsChain[i].Conditions = append(set.Conditions, set.Conditions[0])
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := model.Explore(t.Context(), fault.Load, model.Exploration{Wire: wire.Seed, Cases: 3000, Seed: 3})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Disagreements) == 0 {
				t.Fatal("not found")
			}
			d := r.Disagreements[0]
			vs, err := vectors.Parse("case.vector.yaml", []byte(d.Vector))
			if err != nil {
				t.Fatalf("%v\n%s", err, d.Vector)
			}
			if n := len(vs[0].Webhook.Policies); n > 2 {
				t.Errorf("not small: %d policies\n%s", n, d.Vector)
			}
			if !strings.HasPrefix(d.Vector, "# "+d.Reason) {
				t.Errorf("no reason in\n%s", d.Vector)
			}
		})
	}
}
