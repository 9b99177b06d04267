package granular

import (
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/granular/catalogue"
	"github.com/authzconf/authzconf/granular/enforcer"
)

func bench(t *testing.T) *Bench {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	b, err := Start(t.Context(), local.Release{}, &local.Binaries{})
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

func scenarios(t *testing.T) []*catalogue.Scenario {
	t.Helper()
	all, err := catalogue.Load(catalogue.FS)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReference runs every scenario through the reference.
func TestReference(t *testing.T) {
	b := bench(t)
	for range 2 { // the second time the actors are there already
		start := time.Now()
		results, err := b.Run(t.Context(), enforcer.Reference(), scenarios(t))
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
