package mutants

import (
	"bytes"
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

	"github.com/authzconf/authzconf/clusters/local"
)

// fault breaks an API server, in one or more places.
type fault struct {
	Name  string `json:"fault"`
	Edits []edit `json:"edits"`

	folder string
}

// edit is a change of a function, as faults.yaml describes it.
type edit struct {
	Package  string `json:"package"`
	Function string `json:"function"`
	Anchor   string `json:"anchor"`
	Before   string `json:"before"`
	After    string `json:"after"`

	chosen string // the source of "this fault is chosen"
	fault  string // whose edit it is
	folder string // where the code is that it calls
}

// parseFaults reads a list of edits, the code of which is in a folder.
func parseFaults(t testing.TB, text []byte, folder string) (all []fault) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].folder = folder
	}
	return all
}

// chosenEdits are the edits of the faults from which a number chooses, from 1, when the program runs.
func chosenEdits(faults []fault) (all []edit) {
	for i, f := range faults {
		all = append(all, f.where(fmt.Sprintf("%s.On(%d)", HelperName, i+1))...)
	}
	return all
}

// always are the edits of a fault for good.
func (f fault) always() []edit { return f.where("true") }

// where are the edits of a fault that is chosen where the source of a condition is true.
func (f fault) where(condition string) (all []edit) {
	for _, e := range f.Edits {
		e.chosen, e.fault, e.folder = condition, f.Name, f.folder
		all = append(all, e)
	}
	return all
}

// applyEdits puts the edits of its package into a file; found counts the places of each.
func applyEdits(name string, text []byte, edits []edit, found []int) ([]byte, error) {
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
			if !ok || fn.Body == nil || FunctionName(fn) != e.Function {
				continue
			}
			for _, place := range e.places(fn, source) {
				found[i]++
				all = append(all, insertion{offset(place[0]), strings.ReplaceAll(e.Before, "CHOSEN", e.chosen)})
				if e.After != "" {
					all = append(all, insertion{offset(place[1]), strings.ReplaceAll(e.After, "CHOSEN", e.chosen)})
				}
			}
		}
	}
	if len(all) == 0 {
		return text, nil
	}
	if slices.ContainsFunc(all, func(in insertion) bool { return strings.Contains(in.text, HelperName) }) {
		all = append(all, insertion{offset(tree.Name.End()), fmt.Sprintf("\n\nimport %s %q\n", HelperName, helperPath)})
	}
	return splice(text, all), nil
}

// places are what an edit is put around, in the function: beginnings and ends.
func (e edit) places(fn *ast.FuncDecl, source func(ast.Node) string) (all [][2]token.Pos) {
	if e.Anchor == "body" {
		return [][2]token.Pos{{fn.Body.Lbrace + 1, fn.Body.Lbrace + 1}}
	}
	argument, call, _ := strings.Cut(strings.TrimPrefix(e.Anchor, "argument "), " of ")
	index, err := strconv.Atoi(argument)
	if err != nil {
		return nil
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && source(c.Fun) == call && index < len(c.Args) {
			all = append(all, [2]token.Pos{c.Args[index].Pos(), c.Args[index].End()})
		}
		return true
	})
	return all
}

// editedFiles are the files that edits change, and those that they add, of the modules that a release is built from. Each
// edit has to find its place.
func editedFiles(t testing.TB, b *local.Binaries, r local.Release, edits []edit) moduleFiles {
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
	after := moduleFiles{}
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
			changed, err := applyEdits(name, text, own, found)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(changed, text) {
				after.put(fields[1], filepath.Join(folder, name), changed)
			}
		}
		for i, e := range own {
			if found[i] == 0 {
				t.Fatalf("%s: %s has no %s", e.Package, e.Function, e.Anchor)
			}
			code, err := os.ReadFile(filepath.Join(ownFolder, e.folder, e.fault+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			after.put(fields[1], filepath.Join(folder, "fault_"+strings.ReplaceAll(e.fault, "-", "_")+".go"), code)
		}
	}
	return after
}
