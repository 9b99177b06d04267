package filing

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func badges() *Kind {
	return &Kind{
		Name: "certification", Marker: "certification.yaml",
		Head:  map[string]string{"kind": "Certification", "apiVersion": "authzconf.dev/*", "seed": ""},
		Files: []string{"summary.md", "badge-*.svg", "cases/*/case-*.yaml"},
	}
}

const marker = "apiVersion: authzconf.dev/v1\nkind: Certification\nseed: 7\n"

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree returns every file with its text.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(filepath.Join(dir, p))
		out[p] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWrite(t *testing.T) {
	files := map[string][]byte{
		"certification.yaml":  []byte(marker + "new: 1\n"),
		"summary.md":          []byte("new"),
		"badge-core.svg":      []byte("new"),
		"cases/b/case-2.yaml": []byte("new"),
	}
	earlier := map[string]string{"certification.yaml": marker, "summary.md": "old", "badge-robust.svg": "old", "cases/a/case-1.yaml": "old"}
	for _, c := range []struct {
		name string
		put  []map[string]string
		keep []string // of these, in addition to the new files
		want string   // in the error
	}{
		{"empty", nil, nil, ""},
		{"earlier report", []map[string]string{earlier}, nil, ""},
		{"files of others beside it", []map[string]string{earlier, {"notes.md": "mine", "cases/notes.md": "mine", "cases/a/mine.yaml": "mine", "mine/badge-x.svg": "mine"}}, []string{"notes.md", "cases/notes.md", "cases/a/mine.yaml", "mine/badge-x.svg"}, ""},
		{"of another version", []map[string]string{{"certification.yaml": "apiVersion: authzconf.dev/v9\nkind: Certification\nseed: {}\nmore: []\n", "badge-old.svg": "old"}}, nil, ""},
		{"of another kind", []map[string]string{{"certification.yaml": strings.Replace(marker, "kind: ", "kind: Other", 1)}}, nil, "holds no earlier certification"},
		{"of another group", []map[string]string{{"certification.yaml": strings.Replace(marker, "authzconf.dev", "example.com", 1)}}, nil, "holds no earlier certification"},
		{"without a field", []map[string]string{{"certification.yaml": "apiVersion: authzconf.dev/v1\nkind: Certification\n"}}, nil, "holds no earlier certification"},
		{"no mapping", []map[string]string{{"certification.yaml": "[]"}}, nil, "holds no earlier certification"},
		{"no marker", []map[string]string{{"summary.md": "mine"}}, nil, "holds no earlier certification"},
		{"cut short while staging", []map[string]string{{".authzconf-new/summary.md": "half"}}, nil, ""},
		{"cut short before the new files", []map[string]string{{".authzconf-new/previous": marker, ".authzconf-new/certification.yaml": marker, "badge-robust.svg": "old"}}, nil, ""},
		{"cut short before the marker", []map[string]string{{".authzconf-new/certification.yaml": marker, "badge-robust.svg": "half"}}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, some := range c.put {
				for name, text := range some {
					put(t, dir, name, text)
				}
			}
			before := tree(t, dir)
			for what, err := range map[string]error{"CheckWritable": badges().CheckWritable(dir), "Write": badges().Write(dir, files)} {
				if c.want == "" && err != nil ||
					c.want != "" &&
						(err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: got %v, want %q", what, err, c.want)
				}
			}
			want := map[string]string{}
			for name, data := range files {
				want[name] = string(data)
			}
			for _, name := range c.keep {
				want[name] = "mine"
			}
			if c.want != "" {
				want = before
			}
			got := tree(t, dir)
			for name := range got {
				if got[name] != want[name] {
					t.Errorf("%s is there, with %q, not %q", name, got[name], want[name])
				}
			}
			if len(got) != len(want) {
				t.Errorf("there are %d files, not %d: %v", len(got), len(want), got)
			}
		})
	}
}

// TestWriteOwnFilesOnly checks that a kind of report writes no file that it would not find again in order to replace
// it.
func TestWriteOwnFilesOnly(t *testing.T) {
	for _, name := range []string{"notes.md", "../summary.md", "badge-a/b.svg"} {
		dir := t.TempDir()
		if err := badges().Write(dir, map[string][]byte{"certification.yaml": []byte(marker), name: nil}); err == nil {
			t.Errorf("%s is written", name)
		}
		if len(tree(t, dir)) > 0 {
			t.Errorf("%s: something is written", name)
		}
	}
	if err := badges().Write(t.TempDir(), map[string][]byte{"summary.md": nil}); err == nil {
		t.Error("a report without marker is written")
	}
}

// TestLinks checks that a link out of the folder is not followed.
func TestLinks(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	put(t, outside, "case-1.yaml", "mine")
	put(t, dir, "certification.yaml", marker)
	if err := os.MkdirAll(filepath.Join(dir, "cases"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "cases", "a")); err != nil {
		t.Fatal(err)
	}
	_ = badges().Write(dir, map[string][]byte{"certification.yaml": []byte(marker), "cases/a/case-1.yaml": []byte("new")})
	if got := tree(t, outside); !slices.Equal([]string{got["case-1.yaml"]}, []string{"mine"}) {
		t.Errorf("outside there is %v", got)
	}
}
