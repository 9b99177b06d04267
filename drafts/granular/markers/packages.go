package markers

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// goPackage is a Go package whose files were parsed.
type goPackage struct {
	*packages.Package
	files []*ast.File
	// types are the types that the package declares, by name.
	types map[string]*typeDeclaration
	// declared has the names of the types in the order of their files.
	declared []string
}

// typeDeclaration is the declaration of a type, with what is needed to resolve the names in it.
type typeDeclaration struct {
	*ast.TypeSpec
	file *ast.File
	pkg  *goPackage
}

// loader finds the packages that types come from. It parses each only when a type of it is needed, and checks no types:
// code that does not compile yet, because its generated half is missing, can be read all the same.
type loader struct {
	files    *token.FileSet
	parsed   map[string]*goPackage
	comments map[ast.Node][]*ast.CommentGroup
}

// load returns the packages in a folder and in the folders below it.
func (l *loader) load(dir string) ([]*goPackage, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, errors.New("there is no such folder")
	}
	if _, err := exec.LookPath("go"); err != nil {
		return nil, errors.New("there is no go command on the PATH, expected one, because it says which files a package has")
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedModule,
		Dir:  dir,
	}, "./...")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pkgs, func(a, b *packages.Package) int { return cmp.Compare(a.PkgPath, b.PkgPath) })
	var out []*goPackage
	for _, p := range pkgs {
		parsed, err := l.parse(p)
		if err != nil {
			return nil, err
		}
		out = append(out, parsed)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no Go package, expected a folder with .go files, or with such folders below it")
	}
	return out, nil
}

// parse returns a package with the declarations in its files.
func (l *loader) parse(p *packages.Package) (*goPackage, error) {
	if have := l.parsed[p.PkgPath]; have != nil {
		return have, nil
	}
	if len(p.Errors) > 0 {
		return nil, describeError(p.Errors[0])
	}
	out := &goPackage{Package: p, types: map[string]*typeDeclaration{}}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(l.files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, describeSyntax(err)
		}
		out.files = append(out.files, file)
		out.declare(file)
		attachComments(l.files, file, l.comments)
	}
	l.parsed[p.PkgPath] = out
	return out, nil
}

// describeError returns an error of the go command in one line, with its place if it has one.
func describeError(e packages.Error) error {
	text, _, _ := strings.Cut(strings.TrimSpace(e.Msg), "\n")
	isPlace := e.Pos != "" && e.Pos != "-"
	if isPlace {
		return fmt.Errorf("%s: %s", shorten(e.Pos), text)
	}
	return fmt.Errorf("%s, expected a folder of Go packages in a module", text)
}

// describeSyntax returns the first of the errors in the syntax of a file, with its place.
func describeSyntax(err error) error {
	all, isSyntax := errors.AsType[scanner.ErrorList](err)
	if !isSyntax || len(all) == 0 {
		return err
	}
	return fmt.Errorf("%s:%d: %s", shorten(all[0].Pos.Filename), all[0].Pos.Line, all[0].Msg)
}

// declare adds the types that a file declares.
func (p *goPackage) declare(file *ast.File) {
	for _, d := range file.Decls {
		general, isGeneral := d.(*ast.GenDecl)
		if !isGeneral || general.Tok != token.TYPE {
			continue
		}
		for _, spec := range general.Specs {
			t := spec.(*ast.TypeSpec)
			p.types[t.Name.Name] = &typeDeclaration{t, file, p}
			p.declared = append(p.declared, t.Name.Name)
		}
	}
}
