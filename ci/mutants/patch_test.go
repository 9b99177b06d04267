package mutants

import (
	"errors"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

// TestPatches finds the place of every edit in the newest release, and writes each fix as a patch of the modules that
// it is built from into the folder that FIXES names. What is edited is still Go.
func TestPatches(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the modules of Kubernetes")
	}
	for _, f := range loadFixes(t) {
		t.Run(f.Finding, func(t *testing.T) {
			after, before := editedFiles(t, &local.Binaries{}, local.Newest(), f.always())
			dir := t.TempDir()
			for module, files := range after {
				for name, text := range files {
					if strings.Contains(string(text), "FIXED") {
						t.Errorf("%s: FIXED was not replaced", name)
					}
					formatted, err := format.Source(text)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					files[name] = formatted
				}
				for side, files := range map[string]moduleFiles{"a": before, "b": after} {
					if err := files.write(module, filepath.Join(dir, side, module)); err != nil {
						t.Fatal(err)
					}
				}
			}
			diff := exec.CommandContext(t.Context(), "diff", "-ruN", "a", "b")
			diff.Dir = dir
			patch, err := diff.Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
				t.Fatalf("diff: %v: %s", err, patch)
			}
			if folder := os.Getenv("FIXES"); folder != "" {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, f.Finding+".patch"), patch, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
