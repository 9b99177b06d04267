// Package cluster tests a cluster as whoever builds clusters would: one line, with a kubeconfig.
package cluster

import (
	"context"
	"testing"

	"github.com/authzconf/authzconf/conformance/conformancetest"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites/environment"
)

// TestCluster runs some of the scenarios on a cluster. Without --focus it is all of those that fit one.
func TestCluster(t *testing.T) {
	conformancetest.Run(t, kubeconfig(t), "--focus=^kep-5284/(requests|user-stories)/", "--seed=7")
}

// kubeconfig returns the file for a cluster, which is made here. Yours is made by your own means.
func kubeconfig(t *testing.T) string {
	t.Helper()
	provider := environment.NewProvider(environment.Options{Kubernetes: "1.37", Gate: scenarios.GateOn})
	file, err := provider.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := provider.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return file
}
