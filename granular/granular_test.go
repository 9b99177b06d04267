package granular

import (
	"context"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/granular/enforcer"
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
}

func passAll(t *testing.T, b *Bench) {
	for range 2 { // the second time the actors are there already
		start := time.Now()
		results, err := b.Run(t.Context(), enforcer.Reference(), builtIn(t))
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

// Run runs every attempt of scenarios through an enforcer with the given steps, and judges them afterwards by what was
// recorded. The results are in the order of the scenarios.
func (b *Bench) Run(ctx context.Context, steps enforcer.Steps, scenarios []*Scenario) ([]*Result, error) {
	e, err := b.Observe(ctx, steps, scenarios)
	if err != nil {
		return nil, err
	}
	return judgeAll(b.descriptions, scenarios, e)
}
