package suites_test

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/suites"
)

// TestConformance runs the suites under go test and ginkgo. What to run on comes from the environment:
// AUTHZCONF_SUITE (a list of names), AUTHZCONF_KUBERNETES (a list of versions), AUTHZCONF_GATE (on, off, default, both)
// and AUTHZCONF_SEED. Ginkgo's own --focus, --skip and --label-filter choose what is run.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := matrix.Matrix{
		Provider:   "local",
		Kubernetes: strings.Split(cmp.Or(os.Getenv("AUTHZCONF_KUBERNETES"), matrix.Newest()), ","),
		Gate:       cmp.Or(os.Getenv("AUTHZCONF_GATE"), "both"),
		Binaries:   &local.Binaries{Progress: os.Stderr},
	}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseInt(cmp.Or(os.Getenv("AUTHZCONF_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatalf("AUTHZCONF_SEED: %v", err)
	}
	folders, err := suites.Folders(strings.Split(cmp.Or(os.Getenv("AUTHZCONF_SUITE"), "impersonation"), ",")...)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := conformance.Plan(set, cells, conformance.Selection{Folders: folders})
	if err != nil {
		t.Fatal(err)
	}
	// Scenarios are loaded before the spec tree is built: each is a spec.
	run := conformance.New(plan, seed, func(conformance.Event) {})
	run.Parallel = conformance.Fitting(cells[0].Cell.Provider)
	describe(context.Background(), "conformance", run)
	choose("conformance", run)
	ginkgo.RunSpecs(t, "conformance")
}
