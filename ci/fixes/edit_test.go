// Package fixes proves the fixes of findings: it compiles them into one kube-apiserver, in which a number chooses one,
// and runs the suite with each.
package fixes

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/clusters/local"
)

// fix mends a finding.
type fix struct {
	Finding string `json:"finding"`
	Edits   []edit `json:"edits"`
}

// edit is a change of a function, as fixes.yaml describes it.
type edit struct {
	Package  string `json:"package"`
	Function string `json:"function"`
	Anchor   string `json:"anchor"`
	Before   string `json:"before"`
	After    string `json:"after"`

	fixed string // the source of "this fix is chosen"
}

//go:embed fixes.yaml
var fixesFile []byte

// loadFixes are those of fixes.yaml.
func loadFixes(t *testing.T) (all []fix) {
	t.Helper()
	if err := yaml.UnmarshalStrict(fixesFile, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// chosen are the edits of the fixes from which a number chooses, from 1, when the program runs.
func chosen(fixes []fix) (all []edit) {
	for i, f := range fixes {
		for _, e := range f.Edits {
			e.fixed = fmt.Sprintf("%s.On(%d)", mutate.HelperName, i+1)
			all = append(all, e)
		}
	}
	return all
}

// always are the edits of a fix for good.
func (f fix) always() (all []edit) {
	for _, e := range f.Edits {
		e.fixed = "true"
		all = append(all, e)
	}
	return all
}

// insertion is a text at an offset of a file.
type insertion struct {
	at   int
	text string
}

// apply puts the edits of its package into a file; found counts the places of each.
func apply(name string, text []byte, edits []edit, found []int) ([]byte, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	source := func(n ast.Node) string { return string(text[offset(n.Pos()):offset(n.End())]) }
	var all []insertion
	for i, e := range edits {
		for _, decl := range tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || mutate.FunctionName(fn) != e.Function {
				continue
			}
			for _, place := range e.places(fn, source) {
				found[i]++
				all = append(all, insertion{offset(place[0]), strings.ReplaceAll(e.Before, "FIXED", e.fixed)})
				if e.After != "" {
					all = append(all, insertion{offset(place[1]), strings.ReplaceAll(e.After, "FIXED", e.fixed)})
				}
			}
		}
	}
	if len(all) == 0 {
		return text, nil
	}
	if slices.ContainsFunc(all, func(in insertion) bool { return strings.Contains(in.text, mutate.HelperName) }) {
		all = append(all, insertion{offset(tree.Name.End()), fmt.Sprintf("\n\nimport %s %q\n", mutate.HelperName, helperPath)})
	}
	slices.SortStableFunc(all, func(a, b insertion) int { return cmp.Compare(a.at, b.at) })
	var out bytes.Buffer
	last := 0
	for _, in := range all {
		out.Write(text[last:in.at])
		out.WriteString(in.text)
		last = in.at
	}
	out.Write(text[last:])
	return out.Bytes(), nil
}

// places are what an edit is put around, in the function: beginnings and ends.
func (e edit) places(fn *ast.FuncDecl, source func(ast.Node) string) (all [][2]token.Pos) {
	if e.Anchor == "body" {
		return [][2]token.Pos{{fn.Body.Lbrace + 1, fn.Body.Lbrace + 1}}
	}
	argument, call, calls := strings.Cut(strings.TrimPrefix(e.Anchor, "argument "), " of ")
	words := strings.Fields(e.Anchor)
	number, _ := strconv.Atoi(words[len(words)-1])
	ast.Inspect(fn, func(n ast.Node) bool {
		matches := false
		switch n := n.(type) {
		case *ast.CallExpr:
			if i, err := strconv.Atoi(argument); calls && err == nil && source(n.Fun) == call && i < len(n.Args) {
				all = append(all, [2]token.Pos{n.Args[i].Pos(), n.Args[i].End()})
			}
		case *ast.SwitchStmt:
			matches = words[0] == "switch"
		case *ast.ReturnStmt:
			matches = words[0] == "return"
		}
		if matches {
			if number--; number == 0 {
				all = append(all, [2]token.Pos{n.Pos(), n.End()})
			}
		}
		return true
	})
	return all
}

// helperPath is the package that chooses, in the module that both others import.
const (
	helperModule = "k8s.io/apiserver"
	helperPath   = helperModule + "/pkg/" + mutate.HelperName
)

// tree is files of modules: by module, and by path in it.
type tree map[string]map[string][]byte

func (t tree) put(module, path string, text []byte) {
	if t[module] == nil {
		t[module] = map[string][]byte{}
	}
	t[module][path] = text
}

// edited are the files that edits change, and those that they add, of the modules that a release is built from; before
// are the changed ones as they were. Each edit has to find its place.
func edited(t *testing.T, b *local.Binaries, r local.Release, edits []edit) (after, before tree) {
	t.Helper()
	dir, err := b.PinnedModule(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, e := range edits {
		packages = append(packages, e.Package)
	}
	slices.Sort(packages)
	after, before = tree{}, tree{}
	for _, pkg := range slices.Compact(packages) {
		out, err := b.GoOutput(t.Context(), dir, "list", "-f", "{{.Dir}} {{.Module.Path}} {{.Module.Dir}} {{join .GoFiles \" \"}}", pkg)
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(out)
		own := slices.DeleteFunc(slices.Clone(edits), func(e edit) bool { return e.Package != pkg })
		found := make([]int, len(own))
		folder, _ := filepath.Rel(fields[2], fields[0])
		for _, name := range fields[3:] {
			text, err := os.ReadFile(filepath.Join(fields[0], name))
			if err != nil {
				t.Fatal(err)
			}
			changed, err := apply(name, text, own, found)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(changed, text) {
				after.put(fields[1], filepath.Join(folder, name), changed)
				before.put(fields[1], filepath.Join(folder, name), text)
			}
		}
		for i, e := range own {
			if found[i] == 0 {
				t.Fatalf("%s: %s has no %s", e.Package, e.Function, e.Anchor)
			}
		}
		if code, err := os.ReadFile(filepath.Join("code", filepath.Base(pkg)+".txt")); err == nil {
			after.put(fields[1], filepath.Join(folder, "zz_fixes.go"), code)
		}
	}
	return after, before
}
