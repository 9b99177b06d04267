package mutants

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/findings"
)

// TestFixed compiles a kube-apiserver with the patch of each finding, and leaves it in a folder of the finding's name.
func TestFixed(t *testing.T) {
	folder := os.Getenv("FIXES")
	if folder == "" {
		t.Skip("builds a kube-apiserver with each patch, into the folder that FIXES names")
	}
	for _, p := range loadPatches(t) {
		t.Run(p.Finding, func(t *testing.T) {
			program, err := p.build(t.Context(), &local.Binaries{Progress: os.Stderr}, local.Newest())
			if err != nil {
				t.Fatal(err)
			}
			linkServer(t, filepath.Join(folder, p.Finding), program)
		})
	}
}

// TestFixes runs the whole suite of impersonation on an API server with one patch after the other: what the finding says
// it changes does what it should then, and everything else what it did.
func TestFixes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kube-apiserver with each patch, and runs the suite on it")
	}
	all, err := findings.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loadPatches(t) {
		t.Run(p.Finding, func(t *testing.T) {
			n := slices.IndexFunc(all, func(other findings.Finding) bool { return other.ID == p.Finding })
			if n < 0 {
				t.Fatalf("there is no finding %s", p.Finding)
			}
			binaries := &local.Binaries{Progress: os.Stderr}
			program, err := p.build(t.Context(), binaries, local.Newest())
			if err != nil {
				t.Fatal(err)
			}
			turned(t, binaries, program, &all[n])
		})
	}
}

// turned runs the suite as it is with the finding mended.
func turned(t *testing.T, b *local.Binaries, program string, f *findings.Finding) {
	t.Helper()
	mended, err := f.Mended()
	if err != nil {
		t.Fatal(err)
	}
	cells, err := matrix.Matrix{
		Provider:   "local",
		Kubernetes: []string{local.Newest().Minor},
		Gates:      matrix.Gates{matrix.GateBoth},
		Binaries:   b,
	}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		cells[i].KubeAPIServerPath = program
	}
	folders, err := conformance.SuiteFolders("impersonation")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := conformance.PlanCells(mended, cells, conformance.Selection{Folders: folders})
	if err != nil {
		t.Fatal(err)
	}
	log := record.New()
	observer := product.Observer{Say: func(text string) { t.Log(text) }}
	if err := conformance.Execute(t.Context(), plan, 0, conformance.Output{Seed: 1, Log: log, Observer: observer}); err != nil {
		t.Fatal(err)
	}
	passed, mends := 0, f.Mends()
	for _, cell := range plan {
		for _, s := range cell.Runs() {
			switch r := conformance.JudgeScenario(s, cell.Target.Cell, log.View()); r.Verdict {
			case verdicts.Passed:
				passed++
				mends = slices.DeleteFunc(mends, func(id string) bool { return id == r.Case })
			case verdicts.Failed, verdicts.Invalid:
				t.Errorf("%s on %s: %s: %s", r.Case, cell.Target.Cell.Name, r.Verdict, r.Reason)
			}
		}
	}
	if len(f.Mends()) == 0 || len(mends) > 0 {
		t.Errorf("of %d scenarios that are to turn, these did not: %v", len(f.Mends()), mends)
	}
	t.Logf("%s: %d verdicts, of which %d scenarios turned and the others stayed", f.ID, passed, len(f.Mends()))
}
