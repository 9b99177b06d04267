package explore_test

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/conformance/matrix"
)

// TestExplore holds model and server against each other in 200 cases, on the
// server that AUTHZCONF_KUBERNETES and AUTHZCONF_GATE name; AUTHZCONF_CASES asks
// for more.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cells, err := matrix.Matrix{
		Provider:   "local",
		Kubernetes: strings.Split(cmp.Or(os.Getenv("AUTHZCONF_KUBERNETES"), matrix.Newest()), ","),
		Gate:       cmp.Or(os.Getenv("AUTHZCONF_GATE"), "on"),
		Binaries:   &local.Binaries{Progress: os.Stderr},
	}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv("AUTHZCONF_CASES"), "200"))
	if err != nil {
		t.Fatalf("AUTHZCONF_CASES: %v", err)
	}
	report, _, err := explore.Run(context.Background(), explore.Options{Cells: cells, Cases: n, Seed: 11, Events: func(e explore.Event) {
		if e.Text != "" {
			t.Log(e.Text)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Broken(); err != nil {
		t.Error(err)
	}
	if report.Disagreed() {
		t.Error("model and server disagree")
	}
	for _, c := range report.Cells {
		if n >= 1000 && c.Special == 0 {
			t.Errorf("%s: no case went past an expiry, a reload or a restart", c.Name)
		}
		if c.Cases != n || c.OverRBAC == 0 || c.Reviews < n {
			t.Errorf("%s: %d cases, %d over RBAC, %d reviews; wanted %d cases, some over RBAC, and at least as many reviews", c.Name, c.Cases, c.OverRBAC, c.Reviews, n)
		}
	}
}
