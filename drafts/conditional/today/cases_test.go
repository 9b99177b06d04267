// Package today tests how an API server of today can do conditional authorization (KEP-5681): what over-granting and
// admission enforce (cases/), what that costs, and how the API server treats conditional answers. The package has only
// tests.
package today

import (
	"fmt"
	"os"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

func TestMain(m *testing.M) {
	state, err := os.MkdirTemp("", "authzconf-conditional-")
	if err != nil {
		panic(err)
	}
	_ = os.Setenv(local.StateVariable, state)
	code := m.Run()
	_ = os.RemoveAll(state)
	os.Exit(code)
}

// startForTest starts a cluster that ends with the test.
func startForTest(t testing.TB, o StartOptions) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return c
}

// TestCasesToday runs every case, on one cluster for each set of feature gates.
func TestCasesToday(t *testing.T) {
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]*player{}
	requests := 0
	for _, cs := range cases {
		gates := fmt.Sprint(cs.Gates)
		if clusters[gates] == nil {
			clusters[gates] = newPlayer(startForTest(t, StartOptions{FeatureGates: cs.Gates}))
			if err := clusters[gates].Register(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(cs.ID, func(t *testing.T) {
			wrong, err := clusters[gates].Play(t.Context(), cs)
			if err != nil {
				t.Fatal(err)
			}
			requests += len(cs.Requests)
			for _, w := range wrong {
				t.Error(w)
			}
		})
	}
	t.Logf("%d cases, %d requests, %d clusters", len(cases), requests, len(clusters))
}
