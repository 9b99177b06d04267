package granular

import (
	"context"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

func bench(t testing.TB) *Bench {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gate: "default", Binaries: &local.Binaries{}}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Start(t.Context(), cells[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func builtIn(t *testing.T) []*Scenario {
	t.Helper()
	all, err := Load(Scenarios)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReference is everything about the reference on one control plane.
func TestReference(t *testing.T) {
	b := bench(t)
	t.Run("scenarios", func(t *testing.T) { passAll(t, b) })
	t.Run("cost", func(t *testing.T) { costs(t, b) })
	t.Run("strangers", func(t *testing.T) { refusesStrangers(t, b) })
	t.Run("bodies", func(t *testing.T) { refusesBodies(t, b) })
	t.Run("race", func(t *testing.T) { doesWhatWasChecked(t, b) })
	t.Run("secondary", func(t *testing.T) { keepsToTheActor(t, b) })
	t.Run("schemas", func(t *testing.T) { describesWhatThereIs(t, b) })
	t.Run("extension", func(t *testing.T) { dropsTheExtension(t, b) })
	t.Run("watched", func(t *testing.T) { followsTheSchema(t, b) })
	t.Run("reviews", func(t *testing.T) { reviewsOfOneself(t, b) })
	t.Run("policies", func(t *testing.T) { enforcesByPolicies(t, b) })
	t.Run("webhooks", func(t *testing.T) { enforcesByWebhooks(t, b) })
}

func passAll(t *testing.T, b *Bench) {
	for range 2 { // the second time the actors are there already
		start := time.Now()
		results, err := b.Run(t.Context(), by(t, Reference), builtIn(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			for _, p := range append(r.Problems, r.Invalid) {
				if p != "" {
					t.Errorf("%s/%s: %s", r.Scenario, r.Attempt, p)
				}
			}
		}
		t.Logf("%d attempts in %s", len(results), time.Since(start))
	}
}

// by is a kind with the built-in descriptions.
func by(t testing.TB, kind string) By {
	t.Helper()
	set, err := permissions.Load(permissions.Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	return By{Kind: kind, Steps: enforcer.Reference(), Descriptions: set}
}

// passBy runs everything by what an API server enforces itself, which is removed then, and returns how many attempts
// could be made.
func passBy(t *testing.T, b *Bench, by By) (applicable int) {
	results, err := b.Run(t.Context(), by, builtIn(t))
	b.remove(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.NotApplicable == "" {
			applicable++
		}
		for _, p := range append(r.Problems, r.Invalid) {
			if p != "" {
				t.Errorf("%s/%s: %s", r.Scenario, r.Attempt, p)
			}
		}
	}
	return applicable
}

// Run runs every attempt of scenarios, and judges them afterwards by what was recorded. The results are in the order of
// the scenarios.
func (b *Bench) Run(ctx context.Context, by By, scenarios []*Scenario) ([]*Result, error) {
	e, err := b.Observe(ctx, by, scenarios)
	if err != nil {
		return nil, err
	}
	return judgeAll(by.Kind, scenarios, e)
}

// remove has the API server enforce nothing any more.
func (b *Bench) remove(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"validatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingwebhookconfigurations"} {
		made := b.admin.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(kind))
		if err := made.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.enforced(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}
