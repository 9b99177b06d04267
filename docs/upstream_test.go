package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// upstreamFile is one file of Kubernetes' own tests that impersonate, as docs/upstream.yaml has it.
type upstreamFile struct {
	File string `json:"file"`
	// None says why nothing of the file is a scenario here; else Cases has, by the names of the cases, scenarios or why
	// there is none.
	None  string               `json:"none"`
	Cases map[string]sameThing `json:"cases"`
}

// sameThing is what shows here what a case of Kubernetes' own does.
type sameThing struct {
	Scenarios []string `json:"scenarios"`
	None      string   `json:"none"`
}

// upstreamRoots are where tests are looked for, by module: all that mention impersonation.
var upstreamRoots = map[string][]string{
	"k8s.io/apiserver":  {"pkg"},
	"k8s.io/client-go":  {"."},
	"k8s.io/kubectl":    {"pkg"},
	"k8s.io/kubernetes": {"cmd", "pkg", "plugin", "test"},
}

// constrained are words that only a test of constrained impersonation has.
var constrained = regexp.MustCompile(`ConstrainedImpersonation|impersonate(-on)?:(user-info|serviceaccount|arbitrary-node|associated-node)`)

// TestUpstreamVersion fails when the libraries of go.mod are newer than the version whose tests the table lists.
func TestUpstreamVersion(t *testing.T) {
	used, listed := libraryVersion(t), "v0"+strings.TrimPrefix(readUpstream(t).Version, "v1")
	if semver.Compare(used, listed) > 0 {
		t.Errorf(
			"go.mod has k8s.io/apiserver %s, and docs/upstream.yaml lists the tests of %s: read those of the newer version, and set version there",
			used,
			listed,
		)
	}
}

// TestUpstreamHasNoEndToEndTest wants upstream.md to be right in saying that no e2e test is about the feature.
func TestUpstreamHasNoEndToEndTest(t *testing.T) {
	dir := moduleDir("k8s.io/kubernetes", readUpstream(t).Version)
	if dir == "" {
		t.Skip("the tests of Kubernetes are not in the module cache")
	}
	err := filepath.WalkDir(filepath.Join(dir, "test/e2e"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		src, err := os.ReadFile(path)
		if found := constrained.Find(src); found != nil {
			t.Errorf("%s has %q: docs/upstream.md says that no e2e test is about constrained impersonation", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// upstreamTable is docs/upstream.yaml.
type upstreamTable struct {
	Version string         `json:"version"`
	Files   []upstreamFile `json:"files"`
}

func readUpstream(t *testing.T) (table upstreamTable) {
	t.Helper()
	raw, err := os.ReadFile("upstream.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(raw, &table)
	}
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestUpstream holds docs/upstream.yaml to the scenarios, to the tests of Kubernetes where they are in the module
// cache, and the page made of it to both.
func TestUpstream(t *testing.T) {
	table := readUpstream(t)
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	listed := checkUpstream(t, table.Files, set)
	for module, roots := range upstreamRoots {
		dir := moduleDir(module, table.Version)
		if dir == "" {
			t.Logf("%s of %s is not in the module cache: its cases are not compared", module, table.Version)
			continue
		}
		for file, cases := range upstreamCases(t, dir, roots) {
			file = module + "/" + file
			f, ok := listed[file]
			switch {
			case !ok:
				t.Errorf("%s is not in docs/upstream.yaml (expected it with its cases, or why there is nothing of it): %q", file, cases)
			case f.None == "":
				compareCases(t, f, cases)
			}
		}
	}
	ComparePart(t, "upstream.md", "made from docs/upstream.yaml by go test ./docs -update", upstreamPage(table.Files), *update)
}

// checkUpstream wants each file of the table to have cases or a reason, and the scenarios that they name to exist.
func checkUpstream(t *testing.T, files []upstreamFile, set *scenarios.Set) map[string]upstreamFile {
	t.Helper()
	listed := map[string]upstreamFile{}
	for _, f := range files {
		if (f.None == "") == (len(f.Cases) == 0) {
			t.Errorf("%s: expected either none or cases", f.File)
		}
		listed[f.File] = f
		for name, same := range f.Cases {
			if (same.None == "") == (len(same.Scenarios) == 0) {
				t.Errorf("%s, %q: expected either scenarios or none", f.File, name)
			}
			for _, id := range same.Scenarios {
				if _, ok := set.Get(id); !ok {
					t.Errorf("%s, %q: unknown scenario %s", f.File, name, id)
				}
			}
		}
	}
	return listed
}

func compareCases(t *testing.T, f upstreamFile, cases []string) {
	t.Helper()
	for _, name := range cases {
		if _, ok := f.Cases[name]; !ok {
			t.Errorf("%s has the case %q, which is not in docs/upstream.yaml", f.File, name)
		}
	}
	for name := range f.Cases {
		if !slices.Contains(cases, name) {
			t.Errorf("%s has no case %q", f.File, name)
		}
	}
}

// moduleDir is where the module cache has a module of a version of Kubernetes; "" if it has not.
func moduleDir(module, version string) string {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return ""
	}
	if module != "k8s.io/kubernetes" {
		version = "v0" + strings.TrimPrefix(version, "v1")
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), module+"@"+version)
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// upstreamCases are the cases of all tests below the roots that mention impersonation, by file.
func upstreamCases(t *testing.T, dir string, roots []string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !isTest(path) {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(src, []byte("mpersonat")) {
				return err
			}
			file, err := filepath.Rel(dir, path)
			switch {
			case err != nil:
			case strings.HasSuffix(path, ".sh"):
				out[file] = shellCases(src)
			default:
				out[file], err = casesOf(path, src)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// isTest reports whether a file has tests: of Go, of Ginkgo, or of kubectl by a script.
func isTest(path string) bool {
	switch filepath.Ext(path) {
	case ".go":
		return strings.Contains(path, "/test/e2e/") || strings.HasSuffix(path, "_test.go")
	case ".sh":
		return strings.Contains(path, "/test/cmd/")
	}
	return false
}

var shellTest = regexp.MustCompile(`(?m)^(run_\w*impersonat\w*)\(\)`)

// shellCases are the functions of a script that test impersonation.
func shellCases(src []byte) (cases []string) {
	for _, m := range shellTest.FindAllSubmatch(src, -1) {
		cases = append(cases, string(m[1]))
	}
	return cases
}

// casesOf are the names of the cases in the functions of a file that mention impersonation: in tables, of subtests and of
// Ginkgo's It; or those of the tests themselves.
func casesOf(path string, src []byte) (cases []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, src, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		text := src[set.Position(d.Pos()).Offset:set.Position(d.End()).Offset]
		fn, isFunc := d.(*ast.FuncDecl)
		if !bytes.Contains(text, []byte("mpersonat")) ||
			isFunc && strings.HasPrefix(fn.Name.Name, "Benchmark") {
			continue
		}
		before := len(cases)
		ast.Inspect(d, func(n ast.Node) bool {
			var name ast.Expr
			switch x := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := x.Key.(*ast.Ident); ok && key.Name == "name" {
					name = x.Value
				}
			case *ast.CallExpr:
				if f, ok := x.Fun.(*ast.SelectorExpr); ok && len(x.Args) > 1 &&
					slices.Contains([]string{"Run", "It", "ConformanceIt"}, f.Sel.Name) {
					name = x.Args[0]
				}
			}
			if lit, ok := name.(*ast.BasicLit); ok {
				text, _ := strconv.Unquote(lit.Value)
				cases = append(cases, text)
			}
			return true
		})
		if isFunc && strings.HasPrefix(fn.Name.Name, "Test") && len(cases) == before && !ranged(text) {
			cases = append(cases, fn.Name.Name)
		}
	}
	slices.Sort(cases)
	return slices.Compact(cases), nil
}

// ranged tells whether a test takes its cases from elsewhere in the file.
func ranged(text []byte) bool { return bytes.Contains(text, []byte("TestCases()")) }

// upstreamPage is the table as a page.
func upstreamPage(files []upstreamFile) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "### %s\n\n", strings.TrimPrefix(f.File, "k8s.io/"))
		if f.None != "" {
			fmt.Fprintf(&b, "None: %s\n\n", f.None)
			continue
		}
		b.WriteString("| case | here |\n|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(f.Cases)) {
			here := f.Cases[name].None
			var links []string
			for _, id := range f.Cases[name].Scenarios {
				links = append(links, fmt.Sprintf("[%s](../scenarios/%s.yaml)", id, id))
			}
			if len(links) > 0 {
				here = strings.Join(links, "<br>")
			}
			fmt.Fprintf(&b, "| %s | %s |\n", name, here)
		}
		b.WriteString("\n")
	}
	return b.String()
}
