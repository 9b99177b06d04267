package mutants

import (
	_ "embed"
	"errors"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
)

//go:embed faults.yaml
var faultsFile []byte

// TestFaults compiles each fault for good, and leaves a kube-apiserver for each in the folder that FAULTS names: servers that
// storms, generated cases and runs of scenarios have to fail (make faults).
func TestFaults(t *testing.T) {
	folder := os.Getenv("FAULTS")
	if folder == "" {
		t.Skip("builds a kube-apiserver for each fault, into the folder that FAULTS names")
	}
	for _, f := range parseFaults(t, faultsFile, "faults") {
		t.Run(f.Name, func(t *testing.T) { buildInto(t, folder, f) })
	}
}

// TestFaultsFindPlaces finds the place of every edit of the faults in the newest release. What is edited is still Go.
func TestFaultsFindPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the modules of Kubernetes")
	}
	faults := slices.Concat(parseFaults(t, faultsFile, "faults"), parseFaults(t, concurrencyFile, "concurrency"))
	for _, f := range faults {
		t.Run(f.Name, func(t *testing.T) {
			for _, files := range editedFiles(t, &local.Binaries{}, local.Newest(), f.always()) {
				for name, text := range files {
					if _, err := format.Source(text); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		})
	}
}

// buildInto compiles a kube-apiserver with a fault for good, and links to it from the folder that bears its name.
func buildInto(t *testing.T, folder string, f fault) (link string) {
	t.Helper()
	b := &local.Binaries{Progress: os.Stderr}
	program, err := editedFiles(t, b, local.Newest(), f.always()).build(t.Context(), b, local.Newest(), "fault")
	if err != nil {
		t.Fatal(err)
	}
	return linkServer(t, filepath.Join(folder, f.Name), program)
}

// linkServer links to a program from a folder, in which it is called kube-apiserver.
func linkServer(t *testing.T, folder, program string) (link string) {
	t.Helper()
	link = filepath.Join(folder, "kube-apiserver")
	if err := errors.Join(os.RemoveAll(link), os.MkdirAll(folder, 0o755), os.Symlink(program, link)); err != nil {
		t.Fatal(err)
	}
	return link
}

// buildFaults compiles faults into one kube-apiserver, which chooses one of them when it starts, or finds it in the cache.
func buildFaults(t *testing.T, b *local.Binaries, r local.Release, faults []fault) string {
	t.Helper()
	files := editedFiles(t, b, r, chosenEdits(faults))
	files.putHelpers()
	path, err := files.build(t.Context(), b, r, "faults")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
