// Package engines certifies policy engines that hold the policy as authzconf
// certify policy writes it for them. It is a module of its own: nobody who only
// builds authzconf needs the engines.
package engines

import (
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/certify/certifytest"
	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

type spec = authorizationv1.SubjectAccessReviewSpec

// seed is of no importance.
const seed = 7

// levels are core and, where all faulty authorizers are certified too, no-overgrant.
func levels() []certify.CertificationLevel {
	if !sample.IsEverything() {
		return certify.Levels()[:1]
	}
	return certify.Levels()[:2]
}

func planOf(t testing.TB, seed int64) *certify.Plan {
	t.Helper()
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := certify.NewPlan(set, seed)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestCedar evaluates the policy as plain Cedar, behind the HTTP handler of the reference: Cedar comes as a library, not
// as a server.
func TestCedar(t *testing.T) {
	plan := planOf(t, seed)
	allowed := loadCedarPolicy(t, plan.Policy)
	run := ask(t, plan, levels(), func(s spec) scenarios.Decision {
		ok, err := allowed(s)
		switch {
		case err != nil:
			t.Errorf("the engine fails: %v", err)
		case ok:
			return scenarios.Allow
		}
		return scenarios.NoOpinion
	})
	for _, f := range run.Findings {
		t.Errorf("%s (%s, %d): %v", f.Reason, f.Level, f.Count, f.Examples)
	}
	for i, r := range run.Results[:len(levels())] {
		if r.Level != levels()[i] || !r.Granted {
			t.Errorf("level %s is not granted: %+v", levels()[i], r)
		}
	}
}

// TestCedarIsSafe asks Cedar, with the policy loaded, for what nobody was granted.
func TestCedarIsSafe(t *testing.T) {
	allowed := loadCedarPolicy(t, planOf(t, seed).Policy)
	certifytest.RunSafe(t, reference.Handler(func(s spec) scenarios.Decision {
		if ok, err := allowed(s); ok && err == nil {
			return scenarios.Allow
		}
		return scenarios.NoOpinion
	}))
}

// TestWrongPolicyIsNoticed certifies with the policy of another seed.
func TestWrongPolicyIsNoticed(t *testing.T) {
	allowed := loadCedarPolicy(t, planOf(t, seed+1).Policy)
	_, err := certifyWith(t, planOf(t, seed), []certify.CertificationLevel{certify.Core}, func(s spec) scenarios.Decision {
		if ok, _ := allowed(s); ok {
			return scenarios.Allow
		}
		return scenarios.NoOpinion
	})
	var notLoaded *certify.NotLoadedError
	if !errors.As(err, &notLoaded) {
		t.Errorf("with another policy: %v", err)
	}
}

func ask(t testing.TB, plan *certify.Plan, levels []certify.CertificationLevel, decide reference.Decider) *certify.Run[certify.Answer] {
	t.Helper()
	run, err := certifyWith(t, plan, levels, decide)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func certifyWith(
	t testing.TB,
	plan *certify.Plan,
	levels []certify.CertificationLevel,
	decide reference.Decider,
) (*certify.Run[certify.Answer], error) {
	t.Helper()
	webhook, stop, err := certify.Serve(reference.Handler(decide))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	return certify.Certify(t.Context(), certify.Options{Webhook: webhook, Plan: plan, Levels: levels})
}
