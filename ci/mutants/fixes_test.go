package mutants

import (
	"encoding/binary"
	"errors"
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

// buildFixes compiles all fixes into one kube-apiserver, or finds it in the cache.
func buildFixes(t *testing.T, b *local.Binaries, r local.Release, fixes []fix) string {
	t.Helper()
	files, _ := editedFiles(t, b, r, chosenEdits(fixes))
	files.putHelpers()
	path, err := files.build(t.Context(), b, r, "fixes")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFixed compiles the fix of each finding for good, as its patch has it, and leaves the program beside the patch.
func TestFixed(t *testing.T) {
	folder := os.Getenv("FIXES")
	if folder == "" {
		t.Skip("builds a kube-apiserver for each fix, into the folder that FIXES names")
	}
	for _, f := range loadFixes(t) {
		t.Run(f.Finding, func(t *testing.T) { buildInto(t, folder, f) })
	}
}

// buildInto compiles a kube-apiserver with edits for good, and links to it from the folder that bears their name.
func buildInto(t *testing.T, folder string, f fix) (link string) {
	t.Helper()
	b := &local.Binaries{Progress: os.Stderr}
	files, _ := editedFiles(t, b, local.Newest(), f.always())
	program, err := files.build(t.Context(), b, local.Newest(), "fixed")
	if err != nil {
		t.Fatal(err)
	}
	link = filepath.Join(folder, f.Finding, "kube-apiserver")
	if err := errors.Join(os.RemoveAll(link), os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(program, link)); err != nil {
		t.Fatal(err)
	}
	return link
}

// TestFixes runs the whole suite of impersonation on an API server with one fix after the other: what the finding says
// it changes does what it should then, and everything else what it did.
func TestFixes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a kube-apiserver, and runs the suite on it")
	}
	fixes, binaries := loadFixes(t), &local.Binaries{Progress: os.Stderr}
	program := buildFixes(t, binaries, local.Newest(), fixes)
	all, err := findings.Load()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range fixes {
		t.Run(f.Finding, func(t *testing.T) {
			n := slices.IndexFunc(all, func(other findings.Finding) bool { return other.ID == f.Finding })
			if n < 0 {
				t.Fatalf("there is no finding %s", f.Finding)
			}
			shared := filepath.Join(t.TempDir(), "shared")
			number := binary.LittleEndian.AppendUint32(nil, uint32(i+1))
			if err := os.WriteFile(shared, append(number, make([]byte, len(fixes)+1)...), 0o600); err != nil {
				t.Fatal(err)
			}
			turned(t, binaries, program, &all[n], SharedVariable+"="+shared)
			reached, err := os.ReadFile(shared)
			if err != nil || reached[SharedHeader+i+1] == 0 {
				t.Errorf("the fix was not reached: %v", err)
			}
		})
	}
}

// turned runs the suite as it is with the finding mended.
func turned(t *testing.T, b *local.Binaries, program string, f *findings.Finding, env string) {
	t.Helper()
	mended, err := f.Mended()
	if err != nil {
		t.Fatal(err)
	}
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{local.Newest().Minor}, Gates: matrix.Gates{matrix.GateBoth}, Binaries: b}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		cells[i].KubeAPIServerPath, cells[i].KubeAPIServerEnv = program, []string{env}
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
