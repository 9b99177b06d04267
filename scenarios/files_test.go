package scenarios_test

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/authzconf/authzconf/scenarios"
)

// TestFiles is about files and folders that are wrong as such.
func TestFiles(t *testing.T) {
	for _, c := range []struct {
		name  string
		files fs.FS
		want  string
	}{
		{"empty", fstest.MapFS{"a/x.yaml": file("")}, `a/x.yaml:1:1: the file is empty (expected a scenario)`},
		{"only a comment", fstest.MapFS{"a/x.yaml": file("# later\n")}, `a/x.yaml:1:1: the file is empty (expected a scenario)`},
		{"only null", fstest.MapFS{"a/x.yaml": file("~\n")}, `a/x.yaml:1:1: the file is empty (expected a scenario)`},
		{"a list", fstest.MapFS{"a/x.yaml": file("- a\n")}, `a/x.yaml:1:1: the file holds a list (expected a mapping with the fields of a scenario)`},
		{"a text", fstest.MapFS{"a/x.yaml": file("hello\n")}, `a/x.yaml:1:1: the file holds a string (expected a mapping with the fields of a scenario)`},
		{"two documents", fstest.MapFS{"a/x.yaml": file(valid + "---\n" + valid)}, `a/x.yaml:26:1: the file holds 2 YAML documents (expected one scenario a file)`},
		{"an empty second document", fstest.MapFS{"a/x.yaml": file(valid + "---\n")}, `a/x.yaml:1:1: the file holds 2 YAML documents (expected one scenario a file)`},
		{"larger than 1 MiB", fstest.MapFS{"a/x.yaml": file(strings.Repeat("#\n", 5<<20))}, `a/x.yaml:1:1: the file is larger than 1 MiB (expected a few KB)`},
		{"unreadable", faultyFS{fstest.MapFS{"a/x.yaml": file(valid)}, 10}, `a/x.yaml:1:1: the file cannot be read: the disk is on fire (expected a readable file)`},
		{".yml", fstest.MapFS{"a/x.yml": file(valid), "a/y.yaml": file(valid)}, `a/x.yml:1:1: would not be read as a scenario (expected a name ending in .yaml)`},
		{"upper case", fstest.MapFS{"a/List Pods.yaml": file(valid)}, `a/List Pods.yaml:1:1: the path gives the ID "a/List Pods" (expected lower-case letters, digits, '-', '_' and '.' in each part)`},
		{"nothing", fstest.MapFS{}, ".: a folder with no scenario (expected at least one .yaml file in it or below)"},
		{"a folder without", fstest.MapFS{"a/x.yaml": file(valid), "b/README.md": file("soon")}, "b: a folder with no scenario (expected at least one .yaml file in it or below)"},
		{"a name that begins alike", fstest.MapFS{"ab/x.yaml": file(valid), "a/README.md": file("soon")}, "a: a folder with no scenario (expected at least one .yaml file in it or below)"},
		{"all files", fstest.MapFS{"b/x.yaml": file("- a"), "a/x.yaml": file(""), "c/x.yaml": file(valid)},
			"a/x.yaml:1:1: the file is empty (expected a scenario)\nb/x.yaml:1:1: the file holds a list (expected a mapping with the fields of a scenario)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := scenarios.Load(c.files, nil)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if set != nil {
				t.Error("a set came with the error")
			}
		})
	}
}

func TestLargeFileIsNotRead(t *testing.T) {
	// The file system claims a size of 10 MiB. Reading any of the file would give another error.
	_, err := scenarios.Load(faultyFS{fstest.MapFS{"a/x.yaml": file(valid)}, 10 << 20}, nil)
	if err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestErrorsUnwrap(t *testing.T) {
	_, err := scenarios.Load(fstest.MapFS{"a/x.yaml": file(""), "b/y.yaml": file("- x")}, nil)
	var one *scenarios.Error
	if !errors.As(err, &one) || one.File != "a/x.yaml" || one.Line != 1 || one.Col != 1 {
		t.Errorf("the first error is %+v", one)
	}
}

// faultyFS claims that every file has a certain size, and fails when a file is read.
type faultyFS struct {
	fstest.MapFS
	size int64
}

func (f faultyFS) Open(name string) (fs.File, error) {
	inner, err := f.MapFS.Open(name)
	if info, serr := f.Stat(name); err != nil || serr != nil || info.IsDir() {
		return inner, err
	}
	return &faultyFile{size: f.size, name: name}, nil
}

type faultyFile struct {
	size int64
	name string
}

func (f *faultyFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f *faultyFile) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.name, Err: errors.New("the disk is on fire")}
}
func (f *faultyFile) Close() error       { return nil }
func (f *faultyFile) Name() string       { return f.name }
func (f *faultyFile) Size() int64        { return f.size }
func (f *faultyFile) Mode() fs.FileMode  { return 0o444 }
func (f *faultyFile) ModTime() time.Time { return time.Time{} }
func (f *faultyFile) IsDir() bool        { return false }
func (f *faultyFile) Sys() any           { return nil }

var _ io.Reader = (*faultyFile)(nil)

// FuzzLoad looks for input on which the loader panics, or that it refuses without naming a place.
func FuzzLoad(f *testing.F) {
	f.Add(valid)
	for _, group := range [][]edit{formRules, identityRules, requestorRules, grantRules, stepRules, expectRules, nameRules, fixtureRules} {
		for _, c := range group {
			f.Add(strings.Replace(valid, c.from, c.to, 1))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := scenarios.Load(fstest.MapFS{"a/x.yaml": file(text)}, ruleFixtures)
		if err != nil {
			lines(t, err)
			return
		}
		s := set.All()[0]
		bound, names := s.Bind("abc123")
		for from, to := range names {
			if to != from+"-abc123" {
				t.Errorf("%q became %q", from, to)
			}
		}
		scenarios.RenderRBAC(bound)
		s.Selected(scenarios.Facts{Kubernetes: "1.37", Binary: "1.37", Gate: scenarios.GateOn})
	})
}
