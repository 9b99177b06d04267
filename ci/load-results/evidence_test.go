package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Everything that is published with its evidence follows from it, and was made by a commit of this repository.
func TestPublishedEvidence(t *testing.T) {
	files, err := filepath.Glob("../../docs/results/*/" + publishedFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all, err := readRuns(file)
		if err != nil {
			t.Fatal(err)
		}
		for title, p := range all {
			if p.Evidence == "" {
				continue // of before evidence was published
			}
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				checkPublished(t, filepath.Join(filepath.Dir(file), p.Evidence), p)
			})
		}
	}
}

func checkPublished(t *testing.T, archive string, p published) {
	t.Helper()
	folder, err := unpackEvidence(archive, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := readColumn(folder)
	if err != nil {
		t.Fatal(err)
	}
	if c.Tool != p.Tool || c.Digest != p.Digest {
		t.Errorf("the evidence is of %s and has the digest %s, and what is published says %s, %s", c.Tool, c.Digest, p.Tool, p.Digest)
	}
	if diff := cmp.Diff(p.Result, c.Result, cmp.FilterPath(isUnexported, cmp.Ignore()), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what is published is not what the evidence shows (-published +evidence):\n%s", diff)
	}
	// A tag, a commit, or one of both that git describe or Go have put before it.
	commit := strings.TrimPrefix(c.Tool[strings.LastIndex(c.Tool, "-")+1:], "g")
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Errorf("authzconf %s is not in the history of this repository: %v: %s", c.Tool, err, out)
	}
}

// isUnexported reports whether a path leads to a field that is not published.
func isUnexported(path cmp.Path) bool {
	field, isField := path.Last().(cmp.StructField)
	return isField && !isExported(field.Name())
}

func isExported(name string) bool { return name[:1] == strings.ToUpper(name[:1]) }

func TestEvidenceArchive(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "shared-100")
	for name, text := range map[string]string{
		"report.yaml":                     "r",
		"record.jsonl":                    "l",
		"report.html":                     "page",
		"evidence/storm/run.json":         "{}",
		"evidence/storm/blocks/0000.json": "[]",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packed, err := packEvidence(folder)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "a"+archiveSuffix)
	if err := os.WriteFile(archive, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	unpacked, err := unpackEvidence(archive, t.TempDir())
	if err != nil || filepath.Base(unpacked) != "shared-100" {
		t.Fatalf("%s, %v", unpacked, err)
	}
	if data, err := os.ReadFile(filepath.Join(unpacked, "evidence/storm/blocks/0000.json")); err != nil || string(data) != "[]" {
		t.Errorf("%q, %v", data, err)
	}
	if data, err := os.ReadFile(filepath.Join(unpacked, "report.html")); err != nil || string(data) != "page" {
		t.Errorf("the page, whose digest the report has: %q, %v", data, err)
	}
	if again, err := packEvidence(folder); err != nil || string(again) != string(packed) {
		t.Errorf("the same folder has another archive, %v", err)
	}
}

func TestCheckTool(t *testing.T) {
	for version, isRefused := range map[string]bool{"e56ab407": false, "v1.2.0-7-ge56ab407": false, "e56ab407-dirty": true, "v0.0.0-20261126104145-e4aa1f5df90a+dirty": true, "unknown": true, "": true} {
		if err := checkTool(version); (err != nil) != isRefused {
			t.Errorf("authzconf %q: %v", version, err)
		}
	}
}
