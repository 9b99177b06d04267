package reports

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What package filing calls them.
const (
	stagingDir   = ".authzconf-new"
	previousFile = "previous"
)

// put writes a file, and the folders it is in.
func put(t *testing.T, dir, name, content string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// written is a folder with a good report, and what it was made from.
func written(t *testing.T, dir string) (*ConformanceReport, func() error) {
	t.Helper()
	texts := testTexts(t)
	r, evidence := mixedRun(t, texts)
	again := func() error { return Write(dir, r, evidence, texts) }
	if err := again(); err != nil {
		t.Fatal(err)
	}
	return r, again
}

func TestWriteMakesTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r, _ := written(t, dir)
	for name, digest := range r.Files {
		if sha256Hex([]byte(content(t, dir, name))) != digest {
			t.Errorf("%s: the digest is another one", name)
		}
	}
	for _, name := range []string{
		"report.yaml", "junit.xml", "report.html", "summary.md", "fixtures/kep-5284/node-agent.yaml",
		"evidence/1.37-gate-on/kep-5284/user-info/list-pods-allowed.json", "scenarios/kep-5284/user-info/list-pods-allowed.yaml",
	} {
		if content(t, dir, name) == "" {
			t.Errorf("%s is empty", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, stagingDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the staging folder is left: %v", err)
	}
}

func TestWriteReplacesOnlyReports(t *testing.T) {
	for _, c := range []struct {
		name   string
		report bool              // begin with an earlier report
		put    map[string]string // then add these
		want   string            // in the error; empty is none
	}{
		{"empty", false, nil, ""},
		{"earlier report", true, nil, ""},
		{"earlier report and a file beside it", true, map[string]string{"notes.md": "mine"}, ""},
		{"a file", false, map[string]string{"notes.md": "mine"}, "is not empty"},
		{"another report.yaml", false, map[string]string{"report.yaml": "kind: ConformanceReport\n"}, "is not empty"},
		{"a file among the evidence", true, map[string]string{"evidence/notes.md": "mine"}, "holds evidence/notes.md"},
		{"another summary", false, map[string]string{"summary.md": "mine"}, "is not empty"},
		{"a report of another version", false, map[string]string{"report.yaml": "apiVersion: authzconf.dev/v2\nkind: ConformanceReport\nnew: 1\nfiles: {summary.md: x}\n", "summary.md": "old"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.report {
				written(t, dir)
				put(t, dir, "evidence/1.37-gate-on/old.json", "{}") // of the earlier report, see below
				old := strings.Replace(content(t, dir, reportFile), "files:\n", "files:\n  evidence/1.37-gate-on/old.json: x\n", 1)
				put(t, dir, reportFile, old)
			}
			for name, text := range c.put {
				put(t, dir, name, text)
			}
			texts := testTexts(t)
			r, evidence := mixedRun(t, texts)
			for _, err := range []error{Folder.CheckWritable(dir), Write(dir, r, evidence, texts)} {
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			}
			for name, text := range c.put {
				if c.want != "" || name == "notes.md" {
					if content(t, dir, name) != text {
						t.Errorf("%s was changed", name)
					}
				}
			}
			if c.want != "" {
				return
			}
			if v, err := Verify(dir, VerifyOptions{}); err != nil || !v.OK() {
				t.Errorf("the report does not hold: %v %v", err, v)
			}
		})
	}
}

// A list of files that names other files does not make them authzconf's.
func TestWriteKeepsWhatAReportOnlyClaims(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "mine/notes.md", "mine")
	put(t, dir, "report.yaml", "apiVersion: authzconf.dev/v1alpha1\nkind: ConformanceReport\nfiles: {mine/notes.md: x, ../outside: x, summary.md: x}\n")
	put(t, filepath.Dir(dir), "outside", "mine")
	if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
		t.Fatal(err)
	}
	written(t, dir)
	if content(t, dir, "mine/notes.md") != "mine" || content(t, filepath.Dir(dir), "outside") != "mine" {
		t.Error("a file of somebody else's was changed")
	}
}

// A replacement that was cut short leaves no report, and is mended by the next.
func TestWriteAfterAnInterruption(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  func(t *testing.T, dir string)
	}{
		{"while staging", func(t *testing.T, dir string) { put(t, dir, stagingDir+"/evidence/x.json", "{") }},
		{"before the new files", func(t *testing.T, dir string) {
			put(t, dir, stagingDir+"/"+previousFile, content(t, dir, reportFile))
			if err := os.Remove(filepath.Join(dir, reportFile)); err != nil {
				t.Fatal(err)
			}
		}},
		{"before report.yaml", func(t *testing.T, dir string) {
			put(t, dir, stagingDir+"/"+reportFile, content(t, dir, reportFile))
			put(t, dir, stagingDir+"/"+previousFile, "apiVersion: authzconf.dev/v1alpha1\nkind: ConformanceReport\nfiles: {evidence/c/gone.json: x}\n")
			if err := os.Remove(filepath.Join(dir, reportFile)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			_, again := written(t, dir)
			c.cut(t, dir)
			if err := again(); err != nil {
				t.Fatal(err)
			}
			if v, err := Verify(dir, VerifyOptions{}); err != nil || !v.OK() || len(v.Notes) > 0 {
				t.Errorf("the report does not hold: %v %+v", err, v)
			}
		})
	}
}

func TestCheckWritable(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "file", "mine")
	for _, name := range []string{"file", "file/below"} {
		if err := Folder.CheckWritable(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: a file was accepted", name)
		}
	}
	fresh := filepath.Join(dir, "fresh", "report")
	if err := Folder.CheckWritable(fresh); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(fresh); err != nil || len(entries) > 0 {
		t.Errorf("got %v, %v, want an empty folder", entries, err)
	}
	if os.Getuid() == 0 {
		return // Nothing is read-only to root.
	}
	if err := os.Chmod(fresh, 0o555); err != nil {
		t.Fatal(err)
	}
	if err := Folder.CheckWritable(fresh); err == nil {
		t.Error("a read-only folder was accepted")
	}
}
