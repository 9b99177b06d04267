package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/authzconf/authzconf/clusters/local"
)

// TestDerivedCodeCompiles derives the mutants of the real packages and type-checks what comes out, as if it were in the
// place of the originals.
func TestDerivedCodeCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages of Kubernetes")
	}
	releases := local.Releases()
	dir, err := (&local.Binaries{}).PinnedModule(t.Context(), releases[len(releases)-1])
	if err != nil {
		t.Fatal(err)
	}
	parts, err := Parts()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, part := range parts {
		paths = append(paths, part.Packages...)
	}
	load := func(paths ...string) []*packages.Package {
		loaded, err := packages.Load(&packages.Config{
			Context: t.Context(), Dir: dir, Env: append(os.Environ(), local.BuildEnv()...), BuildFlags: []string{"-trimpath"},
			Mode: packages.LoadSyntax | packages.NeedModule,
		}, paths...)
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	loaded := load(paths...)
	s, err := deriveParts(parts, loaded)
	if err != nil {
		t.Fatal(err)
	}
	checkMutants(t, s)
	helpers := typeCheck(
		t,
		leftAlone.HelperPath,
		load("encoding/binary", "errors", "os", "syscall"),
		[][]byte{s.Texts[helperModule]["pkg/"+HelperName+"/"+HelperName+".go"]},
		nil,
	)
	for _, p := range loaded {
		var texts [][]byte
		for _, file := range p.CompiledGoFiles {
			name, err := filepath.Rel(p.Module.Dir, file)
			if err != nil {
				t.Fatal(err)
			}
			text := s.Texts[p.Module.Path][name]
			if text == nil {
				if text, err = os.ReadFile(file); err != nil {
					t.Fatal(err)
				}
			}
			texts = append(texts, text)
		}
		typeCheck(t, p.PkgPath, slices.Collect(maps.Values(p.Imports)), texts, helpers)
	}
}

// checkMutants checks that mutants are numbered and named once each, that they are of code that clients reach, and that
// there are some of every function of every part.
func checkMutants(t *testing.T, s *Sources) {
	t.Helper()
	keys, operators, byPart := map[string]bool{}, map[string]int{}, map[string]int{}
	for i, m := range s.Mutants {
		if m.Number != i+1 {
			t.Fatalf("mutant %d has the number %d", i+1, m.Number)
		}
		if keys[m.Key] {
			t.Errorf("two mutants are called %s", m.Key)
		}
		keys[m.Key] = true
		operators[m.Operator]++
		byPart[m.Part]++
		if strings.Contains(m.Function, "ForTests") {
			t.Errorf("%s: no client reaches what only tests call", m.Key)
		}
	}
	for _, p := range s.Parts {
		if byPart[p.Name] == 0 {
			t.Errorf("no mutants of %s", p.Name)
		}
		for _, f := range p.Functions {
			isOfFunction := func(m Mutant) bool {
				isNamed := m.Function == f || strings.HasSuffix(m.Function, "."+f)
				return isNamed && m.Part == p.Name
			}
			if !slices.ContainsFunc(s.Mutants, isOfFunction) {
				t.Errorf("%s: no mutants of a function %s", p.Name, f)
			}
		}
	}
	t.Logf("%d mutants: %v, %v", len(s.Mutants), byPart, operators)
}

// typeCheck type-checks files that may import packages and the helpers.
func typeCheck(t *testing.T, path string, imports []*packages.Package, texts [][]byte, helpers *types.Package) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	var trees []*ast.File
	for i, text := range texts {
		tree, err := parser.ParseFile(fset, fmt.Sprintf("%s/%d.go", path, i), text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	config := types.Config{
		Importer: importerOf(func(path string) (*types.Package, error) {
			if helpers != nil && path == helpers.Path() {
				return helpers, nil
			}
			for _, p := range imports {
				if p.PkgPath == path || strings.HasSuffix(p.PkgPath, "/vendor/"+path) {
					return p.Types, nil
				}
			}
			return nil, fmt.Errorf("%s is not imported by the original", path)
		}),
		Error: func(err error) { t.Error(err) },
	}
	pkg, _ := config.Check(path, fset, trees, nil) // every error was reported
	return pkg
}

type importerOf func(path string) (*types.Package, error)

func (f importerOf) Import(path string) (*types.Package, error) { return f(path) }
