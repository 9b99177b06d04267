package coverage

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// Argument says why no client reaches some statements.
type Argument struct {
	// File, Function and Code say which: the line that opens the list of
	// statements, such as "if err != nil {", and the line of its first statement;
	// the latter alone where the list is the end of a longer one.
	File     string `json:"file"`
	Function string `json:"function"`
	Code     string `json:"code"`
	Reason   string `json:"reason"`

	// From and To are the lines of the list of statements.
	From int `json:"-"`
	To   int `json:"-"`
}

// LoadArguments reads the reviewed arguments, and finds their statements in the
// files. One whose statements are not there any more is an error.
func LoadArguments(name string, fset *token.FileSet, files []File) ([]Argument, error) {
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

// locate finds the list of statements that begins with the code.
func (a *Argument) locate(fset *token.FileSet, files []File) bool {
	for _, f := range files {
		if f.Name != a.File {
			continue
		}
		lines := strings.Split(string(f.Text), "\n")
		for _, decl := range f.Tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || Name(fn) != a.Function {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				for _, l := range lists(n) {
					from := fset.Position(l.stmts[0].Pos()).Line
					code := strings.TrimSpace(lines[from-1])
					if l.opened.IsValid() {
						code = opening(lines, fset.Position(l.opened).Line, from)
					}
					if code == a.Code {
						a.From, a.To = from, fset.Position(l.stmts[len(l.stmts)-1].End()).Line
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

// list are consecutive statements; opened is where the brace or the colon
// before the first one is, if it is the first of its block.
type list struct {
	stmts  []ast.Stmt
	opened token.Pos
}

// lists are the statements of a node, and all tails of them: what follows a
// return that is always taken is unreachable too.
func lists(n ast.Node) []list {
	var all list
	switch n := n.(type) {
	case *ast.BlockStmt:
		all = list{n.List, n.Lbrace}
	case *ast.CaseClause:
		all = list{n.Body, n.Colon}
	}
	var out []list
	for i := len(all.stmts) - 1; i >= 0; i-- {
		tail := list{stmts: all.stmts[i:]}
		if i == 0 {
			tail.opened = all.opened
		}
		out = append(out, tail)
	}
	return out
}

// Covers says whether a line of a file is argued to be unreachable.
func (a Argument) Covers(file string, line int) bool {
	return a.File == file && a.From <= line && line <= a.To
}

// Argue splits what was missed into what is argued and what is not, and returns
// the arguments that are wrong: nothing of theirs was missed.
func (r *Report) Argue(arguments []Argument) (argued map[Block]Argument, missing []Block, wrong []Argument) {
	argued = map[Block]Argument{}
	used := map[int]bool{}
	for _, b := range r.Missed {
		found := false
		for i, a := range arguments {
			if !found && a.Covers(b.File, b.From) {
				argued[b], used[i], found = a, true, true
			}
		}
		if !found {
			missing = append(missing, b)
		}
	}
	for i, a := range arguments {
		if !used[i] {
			wrong = append(wrong, a)
		}
	}
	return argued, missing, wrong
}
