package mutants

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/suites/explore"
)

// TestExploreCoverage runs generated cases, EXPLORE_CASES of each of the seeds 1 to 3, against the kube-apiserver with all
// mutants in it, none of them chosen, and lists the places that they do not reach and no argument says why: what the
// generator has to be taught. It wants model and server to agree, and no argument to be wrong.
func TestExploreCoverage(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("EXPLORE_CASES"))
	if err != nil {
		t.Skip("EXPLORE_CASES says how many cases a seed gets (make explore-coverage)")
	}
	ctx, binaries, release := interruptible(t), &local.Binaries{Progress: t.Output()}, local.Newest()
	sources, err := loadSources(ctx, binaries, release)
	if err != nil {
		t.Fatal(err)
	}
	argued, err := loadArguments(ownFolder, sources)
	if err != nil {
		t.Fatal(err)
	}
	program, err := sources.Texts.build(ctx, binaries, release, "mutants")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := newSharedFile(len(sources.Mutants), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.close()
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{release.Minor}, Gate: "both", Binaries: binaries}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		cells[i].KubeAPIServerPath, cells[i].KubeAPIServerEnv = program, []string{SharedVariable + "=" + shared.path}
	}
	for seed := range int64(3) {
		report, _, err := explore.Run(ctx, explore.Options{Cells: cells, Cases: n, Seed: seed + 1, Events: func(e explore.Event) {
			if e.Text != "" {
				_, _ = fmt.Fprintln(t.Output(), e.Text)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := report.Broken(); err != nil || report.Disagreed() {
			t.Errorf("seed %d: model and server disagree: %t; %v", report.Seed, report.Disagreed(), err)
		}
	}
	numbers, err := shared.take()
	if err != nil {
		t.Fatal(err)
	}
	found := &results{Kubernetes: release.Version, mutants: sources.Mutants, parts: sources.Parts, arguments: argued}
	r := newReach(found, func(n int) bool { return slices.Contains(numbers, n) })
	for _, m := range r.missing {
		_, _ = fmt.Fprintf(t.Output(), "not reached: %s:%d, %s: %s\n", m.File, m.Line, m.Function, m.Snippet)
	}
	_, _ = fmt.Fprintln(t.Output(), r.total())
	for _, m := range sources.Mutants {
		if slices.Contains(numbers, m.Number) && found.is(m.Key, unreachable) {
			t.Errorf("%s: argued to be unreachable, but reached: %s", m.Key, m.Snippet)
		}
	}
}
