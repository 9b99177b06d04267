package mutants

import (
	"bytes"
	"context"
	_ "embed" // the parts
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/local"
)

// Part is a part of a request's way through the API server, as parts.yaml describes it.
type Part struct {
	Name      string   `json:"name"`
	Packages  []string `json:"packages"`
	Functions []string `json:"functions"`
	LeaveOut  []string `json:"leaveOut"`
	Within    string   `json:"within"`
	// Wanted is in percent.
	Wanted float64 `json:"wanted"`
}

//go:embed parts.yaml
var partsFile []byte

// Parts are those of parts.yaml. The first is the one that the suite is about.
func Parts() (all []Part, err error) {
	err = yaml.UnmarshalStrict(partsFile, &all)
	return all, err
}

// helperPath is the package of helpers, and helperModule the module that holds it: every mutated module imports it.
const (
	helperModule = "k8s.io/apiserver"
	helperPath   = helperModule + "/pkg/" + HelperName
)

// leftAlone is what is left alone everywhere.
var leftAlone = Options{
	HelperPath: helperPath,
	Quiet:      []string{"klog.", "klogV.", "httplog.", "utilruntime.HandleError"},
	// What only describes a metric changes no count of it.
	Prose: []string{"Help", "StabilityLevel", "Buckets"},
}

// Sources is the code of all parts with its mutants.
type Sources struct {
	Parts   []Part
	Mutants []Mutant
	// Texts are the mutated files.
	Texts moduleFiles
	// FileSet and Files are the original ones.
	FileSet *token.FileSet
	Files   []Source
}

// loadSources parses and type-checks the packages as the module that a release is built from has them, and derives their
// mutants.
func loadSources(ctx context.Context, b *local.Binaries, r local.Release) (*Sources, error) {
	dir, err := b.PinnedModule(ctx, r)
	if err != nil {
		return nil, err
	}
	parts, err := Parts()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, part := range parts {
		paths = append(paths, part.Packages...)
	}
	loaded, err := packages.Load(&packages.Config{
		Context: ctx, Dir: dir, Env: append(os.Environ(), local.BuildEnv()...), BuildFlags: []string{"-trimpath"},
		Mode: packages.LoadSyntax | packages.NeedModule,
	}, paths...)
	if err != nil {
		return nil, err
	}
	return deriveParts(parts, loaded)
}

// deriveParts is loadSources from packages that are read.
func deriveParts(parts []Part, loaded []*packages.Package) (_ *Sources, err error) {
	out := &Sources{Parts: parts, Texts: moduleFiles{}, FileSet: loaded[0].Fset}
	byPath := map[string]*packages.Package{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
		}
		byPath[p.PkgPath] = p
	}
	places := map[string][2]string{} // of each file: its module, and its path in it
	for _, part := range parts {
		for _, name := range part.Packages {
			if err := out.add(part, byPath[name], name != parts[0].Packages[0], places); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	var texts map[string][]byte
	if out.Mutants, texts, err = Derive(out.FileSet, out.Files, leftAlone); err != nil {
		return nil, err
	}
	for _, f := range out.Files {
		if text := texts[f.Name]; !bytes.Equal(text, f.Text) {
			out.Texts.put(places[f.Name][0], places[f.Name][1], text)
		}
	}
	out.Texts.putHelpers()
	return out, nil
}

// add takes the files of a package. They are named by the package's last word too, but for those of the first one.
func (s *Sources) add(part Part, p *packages.Package, prefix bool, places map[string][2]string) error {
	for i, tree := range p.Syntax {
		file := p.CompiledGoFiles[i]
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := filepath.Base(file)
		if prefix {
			name = path.Join(path.Base(p.PkgPath), name)
		}
		if _, twice := places[name]; twice {
			return fmt.Errorf("two files are called %s", name)
		}
		relative, err := filepath.Rel(p.Module.Dir, file)
		if err != nil {
			return err
		}
		places[name] = [2]string{p.Module.Path, relative}
		s.Files = append(s.Files, Source{
			Name: name, Part: part.Name, Text: text, Tree: tree, Info: p.TypesInfo, Pkg: p.Types,
			Functions: part.Functions, LeaveOut: part.LeaveOut, Within: part.Within,
		})
	}
	return nil
}

// unreachableCode says why no client reaches some statements.
type unreachableCode struct {
	// File, Function and Code say which: the line that opens the list of statements, such as "if err != nil {",
	// and the line of its first statement; the latter alone where the list is the end of a longer one.
	File     string `json:"file"`
	Function string `json:"function"`
	Code     string `json:"code"`
	Reason   string `json:"reason"`

	// From and To are the lines of the list of statements.
	From int `json:"-"`
	To   int `json:"-"`
}

// loadUnreachable reads the reviewed arguments, and finds their statements in the files. One whose statements are
// not there any more is an error.
func loadUnreachable(name string, fset *token.FileSet, files []Source) ([]unreachableCode, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("the arguments for unreachable statements: %w", err)
	}
	var file struct {
		Unreachable []unreachableCode `json:"unreachable"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for i := range file.Unreachable {
		a := &file.Unreachable[i]
		if strings.TrimSpace(a.Reason) == "" {
			errs = append(errs, fmt.Errorf("%s: %s, %s: no reason for %q", name, a.File, a.Function, a.Code))
		}
		if !a.locate(fset, files) {
			errs = append(errs, fmt.Errorf("%s: %s, %s: no list of statements begins with %q", name, a.File, a.Function, a.Code))
		}
	}
	return file.Unreachable, errors.Join(errs...)
}

// locate finds the list of statements that begins with the code: a block or a case, or the end of one, as what
// follows a return that is always taken is unreachable too.
func (a *unreachableCode) locate(fset *token.FileSet, files []Source) bool {
	line := func(p token.Pos) int { return fset.Position(p).Line }
	for _, f := range files {
		lines := strings.Split(string(f.Text), "\n")
		for _, decl := range f.Tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || f.Name != a.File || FunctionName(fn) != a.Function {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				list, opened := statements(n)
				for i, stmt := range slices.Backward(list) {
					code := strings.TrimSpace(lines[line(stmt.Pos())-1])
					if i == 0 {
						code = opening(lines, line(opened), line(stmt.Pos()))
					}
					if code == a.Code {
						a.From, a.To = line(stmt.Pos()), line(list[len(list)-1].End())
					}
				}
				return true
			})
		}
	}
	return a.From > 0
}

// opening is the line that opens a list of statements, and the first one's.
func opening(lines []string, opened, first int) string {
	code := strings.TrimSpace(lines[first-1])
	if opened == first {
		return code
	}
	header, _, _ := strings.Cut(lines[opened-1], "//")
	return strings.TrimSpace(header) + " " + code
}

// statements are those of a block or a case; opened is where the brace or the colon before the first one is.
func statements(n ast.Node) (stmts []ast.Stmt, opened token.Pos) {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List, n.Lbrace
	case *ast.CaseClause:
		return n.Body, n.Colon
	}
	return nil, token.NoPos
}

// Covers says whether a line of a file is argued to be unreachable.
func (a unreachableCode) Covers(file string, line int) bool {
	return a.File == file && a.From <= line && line <= a.To
}
