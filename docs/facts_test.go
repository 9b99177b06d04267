package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// fact is what a page says of upstream's state.
type fact struct {
	Page string `json:"page"`
	Says string `json:"says"`
	Read string `json:"read"` // the day on which it was read
	From string `json:"from"` // where
}

// TestFacts wants each fact of facts.yaml to be said where it is said, and to have been read at the libraries of go.mod.
func TestFacts(t *testing.T) {
	raw, err := os.ReadFile("facts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Version string `json:"version"` // of the k8s.io libraries when the facts were read
		Facts   []fact `json:"facts"`
	}
	if err := yaml.UnmarshalStrict(raw, &table); err != nil {
		t.Fatal(err)
	}
	if used := libraryVersion(t); semver.Compare(used, table.Version) > 0 {
		t.Errorf(
			"go.mod has k8s.io/apiserver %s, and the facts of docs/facts.yaml were read at %s: read each again, mend the pages, and set version",
			used,
			table.Version,
		)
	}
	for _, f := range table.Facts {
		if _, err := time.Parse(time.DateOnly, f.Read); err != nil || f.From == "" {
			t.Errorf("%s, %q: expected the day on which it was read and where (%v)", f.Page, f.Says, err)
		}
		text, err := os.ReadFile(filepath.Join(root, f.Page))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), f.Says) {
			t.Errorf("%s does not say %q any more: change it in docs/facts.yaml as well", f.Page, f.Says)
		}
	}
}

// libraryVersion is the version of k8s.io/apiserver in go.mod.
func libraryVersion(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == "k8s.io/apiserver" {
			return r.Mod.Version
		}
	}
	t.Fatal("go.mod does not require k8s.io/apiserver")
	return ""
}
