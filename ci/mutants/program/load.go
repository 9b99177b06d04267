// Package program makes the two kube-apiservers that show how much of the impersonation package the suite sees:
// one with all mutants in it, and one that counts the statements it reaches.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
)

// Module and Package are where the code under test is.
const (
	Module  = "k8s.io/apiserver"
	Package = Module + "/pkg/endpoints/filters/impersonation"
)

// options are what is left alone in the code under test.
var options = mutate.Options{
	HelperPath:    Package + "/" + mutate.HelperName,
	SkipFunctions: []string{"verbForTests", "cachesForTests"},
	Quiet:         []string{"klog.", "klogV.", "httplog.", "utilruntime.HandleError"},
	// What only describes a metric changes no count of it.
	Prose: []string{"Help", "StabilityLevel", "Buckets"},
}

// Sources is the code under test with its mutants.
type Sources struct {
	Mutants []mutate.Mutant
	// Texts are the mutated files by their path in the module.
	Texts map[string][]byte
	// Files are the original files, by their path below the package under test.
	FileSet *token.FileSet
	Files   []mutate.Source
}

// OnlyTests are the functions under test that only unit tests call.
func OnlyTests() []string { return slices.Clone(options.SkipFunctions) }

// Go runs a go command in the folder of a module and returns its output.
type Go func(ctx context.Context, args ...string) (string, error)

// Load parses and type-checks the packages under test, as the module knows them, and derives their mutants.
func Load(ctx context.Context, run Go) (*Sources, error) {
	listed, err := list(ctx, run)
	if err != nil {
		return nil, err
	}
	return derive(listed)
}

// derive is Load from what the go command said of the packages.
func derive(listed map[string]listedPackage) (*Sources, error) {
	fset := token.NewFileSet()
	var sources []mutate.Source
	for _, path := range []string{Package, Package + "/metrics"} {
		p, ok := listed[path]
		if !ok {
			return nil, fmt.Errorf("the module has no package %s", path)
		}
		checked, err := check(fset, p, listed)
		if err != nil {
			return nil, err
		}
		sources = append(sources, checked...)
	}
	mutants, texts, err := mutate.Derive(fset, sources, options)
	if err != nil {
		return nil, err
	}
	out := &Sources{Mutants: mutants, Texts: map[string][]byte{}, FileSet: fset, Files: sources}
	folder := strings.TrimPrefix(Package, Module+"/")
	for name, text := range texts {
		out.Texts[filepath.Join(folder, filepath.FromSlash(name))] = text
	}
	out.Texts[filepath.Join(folder, mutate.HelperName, mutate.HelperName+".go")] = []byte(mutate.Helpers)
	return out, nil
}

// listedPackage is what go list says of a package.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

func list(ctx context.Context, run Go) (map[string]listedPackage, error) {
	out, err := run(ctx, "list", "-trimpath", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", Package)
	if err != nil {
		return nil, err
	}
	listed := map[string]listedPackage{}
	decoder := json.NewDecoder(strings.NewReader(out))
	for {
		var p listedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return listed, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		listed[p.ImportPath] = p
	}
}

// check parses and type-checks one package. Files are named by their path below the package under test.
func check(fset *token.FileSet, p listedPackage, listed map[string]listedPackage) ([]mutate.Source, error) {
	var trees []*ast.File
	var sources []mutate.Source
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		trees = append(trees, tree)
		short := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, Package)+"/"+name, "/")
		sources = append(sources, mutate.Source{Name: short, Text: text, Tree: tree})
	}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{},
	}
	config := types.Config{Importer: exports(fset, listed)}
	pkg, err := config.Check(p.ImportPath, fset, trees, info)
	if err != nil {
		return nil, fmt.Errorf("type-checking %s: %w", p.ImportPath, err)
	}
	for i := range sources {
		sources[i].Info, sources[i].Pkg = info, pkg
	}
	return sources, nil
}

// exports imports what the compiler wrote.
func exports(fset *token.FileSet, listed map[string]listedPackage) types.Importer {
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		p, ok := listed[path]
		if !ok || p.Export == "" {
			return nil, fmt.Errorf("there is no compiled package %s", path)
		}
		return os.Open(p.Export)
	})
}
