package product

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/authzconf/authzconf/reports/record"
)

// TestReadFolder reads a folder, and once more from the record when the folder is gone.
func TestReadFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	for name, text := range map[string]string{"a.yaml": "a", "below/b.yaml": "b", "c.txt": "c", ".hidden/d.yaml": "d", ".e.yaml": "e"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := NewInvocation(nil, "v0", io.Discard)
	first := readTexts(t, i, dir)
	if want := map[string]string{"a.yaml": "a", "below/b.yaml": "b"}; !maps.Equal(first, want) {
		t.Errorf("got %v, want %v", first, want)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	view := record.New().View()
	again := NewInvocation(nil, "v0", io.Discard)
	again.Recorded = &view
	maps.Copy(again.inputs, i.recordedInputs())
	if second := readTexts(t, again, dir); !maps.Equal(first, second) {
		t.Errorf("from the record: %v, and before: %v", second, first)
	}
	if _, err := i.ReadFolder(dir, ".yaml"); err == nil || err.Error() != dir+": there is no such folder" {
		t.Errorf("got %v", err)
	}
}

func readTexts(t *testing.T, i *Invocation, dir string) map[string]string {
	t.Helper()
	files, err := i.ReadFolder(dir, ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			data, readErr := fs.ReadFile(files, path)
			texts[path], err = string(data), readErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
