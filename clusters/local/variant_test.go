package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCopyModule copies what is built, and makes it writable.
func TestCopyModule(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for name, mode := range map[string]os.FileMode{
		"go.mod": 0o444, "a/a.go": 0o444, "a/a_test.go": 0o444, "a/testdata/x.go": 0o444, "a/embedded.txt": 0o444,
	} {
		path := filepath.Join(from, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyModule(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"go.mod": true, "a/a.go": true, "a/embedded.txt": true, "a/a_test.go": false, "a/testdata/x.go": false} {
		path := filepath.Join(to, filepath.FromSlash(name))
		if isFile(path) != want {
			t.Errorf("%s is copied: %v, want %v", name, !want, want)
		}
		if want {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Errorf("%s cannot be changed: %v", name, err)
			}
		}
	}
}

// TestVariantThatCannotBeChanged leaves nothing behind.
func TestVariantThatCannotBeChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the go command for a module")
	}
	cache := t.TempDir()
	b := &Binaries{CacheDir: cache}
	broken := errors.New("broken")
	_, err := b.KubeAPIServerVariant(t.Context(), releases[len(releases)-1], Variant{
		Name: "test", Modules: []string{"sigs.k8s.io/yaml"}, Key: "k", Change: func(_, _ string) error { return broken },
	})
	if !errors.Is(err, broken) {
		t.Fatalf("error %v, want that of the change", err)
	}
	left, globErr := filepath.Glob(filepath.Join(cache, "modules", "*-test-*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, globErr)
	}
}
