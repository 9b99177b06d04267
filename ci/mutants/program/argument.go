package program

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
)

// Argument says why no client reaches some statements.
type Argument struct {
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

// LoadArguments reads the reviewed arguments, and finds their statements in the files. One whose statements are
// not there any more is an error.
func LoadArguments(name string, fset *token.FileSet, files []mutate.Source) ([]Argument, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("the arguments for unreachable statements: %w", err)
	}
	var file struct {
		Unreachable []Argument `json:"unreachable"`
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
func (a *Argument) locate(fset *token.FileSet, files []mutate.Source) bool {
	line := func(p token.Pos) int { return fset.Position(p).Line }
	for _, f := range files {
		lines := strings.Split(string(f.Text), "\n")
		for _, decl := range f.Tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || f.Name != a.File || mutate.FunctionName(fn) != a.Function {
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
func (a Argument) Covers(file string, line int) bool {
	return a.File == file && a.From <= line && line <= a.To
}
