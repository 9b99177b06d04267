package program

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/clusters/local"
)

// inPinnedModule runs go commands in the module that kube-apiserver is built
// from.
func inPinnedModule(t *testing.T) Go {
	t.Helper()
	binaries := &local.Binaries{}
	releases := local.Releases()
	dir, err := binaries.PinnedModule(t.Context(), releases[len(releases)-1])
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, args ...string) (string, error) {
		return binaries.GoOutput(ctx, dir, args...)
	}
}

// TestMutantsCompile derives the mutants of the real package and type-checks
// what comes out.
func TestMutantsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages of Kubernetes")
	}
	// Once for all that is checked: where Go's build cache is empty, it takes minutes.
	listed, err := list(t.Context(), inPinnedModule(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := derive(listed)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Mutants) < 150 {
		t.Errorf("only %d mutants", len(s.Mutants))
	}
	keys := map[string]bool{}
	operators := map[string]int{}
	for i, m := range s.Mutants {
		if m.Number != i+1 {
			t.Fatalf("mutant %d has the number %d", i+1, m.Number)
		}
		if keys[m.Key] {
			t.Errorf("two mutants are called %s", m.Key)
		}
		keys[m.Key] = true
		operators[m.Operator]++
		if strings.Contains(m.Function, "ForTests") {
			t.Errorf("%s: no client reaches what only tests call", m.Key)
		}
	}
	t.Logf("%d mutants: %v", len(s.Mutants), operators)
	fset := token.NewFileSet()
	helpers := checkTexts(t, fset, Package+"/"+mutate.HelperName, listed, nil, s.Texts, "/"+mutate.HelperName+"/")
	checkTexts(t, fset, Package+"/metrics", listed, helpers, s.Texts, "/metrics/")
	checkTexts(t, fset, Package, listed, helpers, s.Texts, "impersonation/")
}

// checkTexts type-checks the mutated files whose folder ends as given.
func checkTexts(t *testing.T, fset *token.FileSet, path string, listed map[string]listedPackage, helpers *types.Package, texts map[string][]byte, folder string) *types.Package {
	t.Helper()
	var trees []*ast.File
	for name, text := range texts {
		if !strings.HasSuffix(name[:strings.LastIndex(name, "/")+1], folder) {
			continue
		}
		tree, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	all := exports(fset, listed)
	if helpers == nil { // the standard library only, some of which the package does not use itself
		all = importerOf(all.Import)
	}
	config := types.Config{
		Importer: importerOf(func(path string) (*types.Package, error) {
			if helpers != nil && path == helpers.Path() {
				return helpers, nil
			}
			return all.Import(path)
		}),
		Error: func(err error) { t.Error(err) },
	}
	pkg, _ := config.Check(path, fset, trees, nil) // every error was reported
	return pkg
}

type importerOf func(path string) (*types.Package, error)

func (f importerOf) Import(path string) (*types.Package, error) { return f(path) }
