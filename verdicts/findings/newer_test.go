package findings

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

const newerFile = "newer_test.yaml"

// newerHead is the head of newer_test.yaml, which TestNewer writes.
const newerHead = `# What became of findings after the release that they are tried on every night (tried). code is whether the functions
# that cause them are the same in newer versions: go test ./verdicts/findings -run TestNewer -update compares them again.
# seen is what authzconf reproduce said on a newer server: NEWER=VERSION go test ./cmd/authzconf -run TestReproducedNewer -timeout 1h -update
`

// newer is what is known of findings on versions after the one on which they are tried.
type newer struct {
	Tried    string         `json:"tried"`
	Releases []newerRelease `json:"releases"`
}

// newerRelease is what is known of findings on one version of Kubernetes.
type newerRelease struct {
	Version  string `json:"version"`
	Released string `json:"released"`
	// Code is the outcome of the comparison for each finding. Seen is what was seen of each finding where a server of
	// the version was run.
	Code map[string]string `json:"code"`
	Seen map[string]string `json:"seen,omitempty"`
}

func readNewer(t *testing.T) (n newer) {
	t.Helper()
	text, err := os.ReadFile(newerFile)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &n)
	}
	if err != nil || len(n.Releases) == 0 {
		t.Fatalf("%s has %d releases: %v", newerFile, len(n.Releases), err)
	}
	return n
}

// cell returns the cell of the table of findings for one finding on a version.
func (r newerRelease) cell(id string) string {
	code := r.Code[id]
	if seen := r.Seen[id]; seen != "" {
		return seenWords[seen] + "; " + code
	}
	return code
}

// newerCell is what the page of a finding says about a newer version.
type newerCell struct{ Version, What string }

// describeFinding returns what is known of a finding on each of the newer versions.
func (n newer) describeFinding(id string) (cells []newerCell) {
	for _, r := range n.Releases {
		what := r.Code[id]
		if seen := r.Seen[id]; seen != "" {
			what = seen + "; " + what
		}
		cells = append(cells, newerCell{r.Version, what})
	}
	return cells
}

// TestNewer compares the functions that cause findings in newer versions of Kubernetes with those of the release that
// findings are tried on. It fails when that release has moved on, or when a comparison has another outcome than before.
func TestNewer(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the modules of Kubernetes")
	}
	all, _ := loadAll(t)
	n := readNewer(t)
	pinned := pinnedVersion(t)
	if n.Tried != pinned && !*update {
		t.Fatalf(
			"%s compares with %s, and kube-apiserver is pinned at %s: see which versions are newer, and run this test with -update",
			newerFile,
			n.Tried,
			pinned,
		)
	}
	n.Tried = pinned
	before := modules{pinned, map[string]fs.FS{}}
	for i, r := range n.Releases {
		if semver.Compare("v"+r.Version, "v"+pinned) <= 0 {
			t.Errorf("%s: %s is not newer than %s: take it out, or put a newer one in its place", newerFile, r.Version, pinned)
		}
		n.Releases[i].Code = map[string]string{}
		after := modules{r.Version, map[string]fs.FS{}}
		for _, f := range all {
			got := f.compareCode(t, before, after)
			n.Releases[i].Code[f.ID] = got
			if !*update {
				r.checkCode(t, f.ID, got)
			}
		}
	}
	if *update {
		text, err := yaml.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(newerFile, append([]byte(newerHead), text...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// checkCode checks that a comparison has the outcome that it had before. Where modules are missing on this machine it
// only logs a difference.
func (r newerRelease) checkCode(t *testing.T, id, got string) {
	t.Helper()
	want := r.Code[id]
	switch {
	case got == want:
	case isIncomplete(got):
		t.Logf("%s in %s: %q, and %q before", id, r.Version, got, want)
	default:
		t.Errorf("%s in %s: %q, and %q before", id, r.Version, got, want)
	}
}

// pinnedVersion returns the version from which kube-apiserver of the newest minor is built.
func pinnedVersion(t *testing.T) string {
	t.Helper()
	version, err := listModule(t, "{{.Version}}", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(version, "v")
}

// listModule returns what `go list` prints, in a format, of a module of k8s.io that kube-apiserver of the newest minor is
// built from.
func listModule(t *testing.T, format, module string) (string, error) {
	t.Helper()
	const modfile = "-modfile=clusters/local/versions/kubernetes-1.37.mod"
	list := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", modfile, "-m", "-f", format, "k8s.io/"+module)
	list.Dir = "../.."
	out, err := list.Output()
	return strings.TrimSpace(string(out)), err
}

// modules are the modules of a version of Kubernetes that have been opened so far. A module that cannot be downloaded
// is nil.
type modules struct {
	version string
	opened  map[string]fs.FS
}

// open reads a module of k8s.io from the zip file that the go command downloads.
func (m modules) open(t *testing.T, name string) fs.FS {
	t.Helper()
	if files, known := m.opened[name]; known {
		return files
	}
	m.opened[name] = nil
	version := "v" + m.version
	if name != "kubernetes" {
		version = "v0" + strings.TrimPrefix(m.version, "1")
	}
	// A version that requires a newer Go is downloaded although the command fails. Every error is in the output.
	output, _ := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "k8s.io/"+name+"@"+version).Output()
	var downloaded struct{ Zip string }
	if err := json.Unmarshal(output, &downloaded); err != nil || downloaded.Zip == "" {
		t.Logf("k8s.io/%s %s cannot be had: %s", name, version, output)
		return nil
	}
	archive, err := zip.OpenReader(downloaded.Zip)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = archive.Close() })
	files, err := fs.Sub(archive, "k8s.io/"+name+"@"+version)
	if err != nil {
		t.Fatal(err)
	}
	m.opened[name] = files
	return files
}

const (
	sameCode    = "same code"
	notCompared = "not compared"
)

// isIncomplete reports whether modules were missing in a comparison.
func isIncomplete(code string) bool {
	return code == notCompared || strings.HasPrefix(code, sameCode+" (without ")
}

// compareCode compares the functions that cause a finding in two versions, and returns the outcome in words.
func (f Finding) compareCode(t *testing.T, before, after modules) string {
	t.Helper()
	var same, changed, missing []string
	for _, c := range f.Cause {
		name, file, _ := strings.Cut(c.File, "/")
		old, now := before.open(t, name), after.open(t, name)
		switch {
		case old == nil, now == nil:
			missing = append(missing, "k8s.io/"+name)
		case slices.Equal(functionSource(t, old, file, c.Function), functionSource(t, now, file, c.Function)):
			same = append(same, c.Function)
		default:
			changed = append(changed, "`"+c.Function+"`")
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	switch {
	case len(changed) > 0:
		return "changed: " + strings.Join(changed, ", ")
	case len(same) == 0:
		return notCompared
	case len(missing) == 0:
		return sameCode
	default:
		return fmt.Sprintf("%s (without %s)", sameCode, strings.Join(missing, ", "))
	}
}

// functionSource returns the source of the functions and methods with a name in a file, or none if there is no such
// file.
func functionSource(t *testing.T, files fs.FS, name, function string) (sources []string) {
	t.Helper()
	file, err := files.Open(name)
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range tree.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Name.Name == function {
			sources = append(sources, string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset]))
		}
	}
	return sources
}

// TestFunctionSource checks that functions and methods are found, and that a change of one is seen.
func TestFunctionSource(t *testing.T) {
	write := func(body string) fs.FS {
		dir := t.TempDir()
		text := "package p\n\n// A comment.\nfunc (x T) Same() {}\n\nfunc Same() { " + body + " }\n\nfunc Other() {}\n"
		if err := os.WriteFile(dir+"/p.go", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return os.DirFS(dir)
	}
	before, after := write("println(1)"), write("println(2)")
	if got := functionSource(t, before, "p.go", "Same"); len(got) != 2 || got[1] != "func Same() { println(1) }" {
		t.Errorf("the functions are %q", got)
	}
	f := Finding{Cause: []Cause{{File: "apiserver/p.go", Function: "Other"}}}
	old, now := modules{"1", map[string]fs.FS{"apiserver": before}}, modules{"2", map[string]fs.FS{"apiserver": after}}
	if got := f.compareCode(t, old, now); got != sameCode {
		t.Errorf("of a function that is the same: %q", got)
	}
	f.Cause = append(f.Cause, Cause{File: "apiserver/p.go", Function: "Same"})
	if got := f.compareCode(t, old, now); got != "changed: `Same`" {
		t.Errorf("of a function that has changed: %q", got)
	}
	now.opened["apiserver"] = nil
	if got := f.compareCode(t, old, now); got != notCompared {
		t.Errorf("of a module that cannot be had: %q", got)
	}
}
