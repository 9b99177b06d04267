// Package readability checks what no linter here checks: that a reader can review the conditions in the code.
package readability

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostTerms is how many terms a condition may have that has no name.
const mostTerms = 3

// TestConditions finds lines that mix && and ||, and conditions of many terms. A condition has a name if it is the value
// of a variable or the result of a function.
func TestConditions(t *testing.T) {
	root := filepath.Join("..", "..")
	lines := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		below, _ := filepath.Rel(root, path)
		hidden := len(name) > 2 &&
			(strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_"))
		if d.IsDir() && hidden {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines += strings.Count(string(source), "\n")
		problems, err := checkConditions(filepath.ToSlash(below), source)
		for _, p := range problems {
			t.Error(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines < 1_000 {
		t.Errorf("only %d lines were read", lines)
	}
}

// checkConditions returns what is wrong with the conditions in a file, a line each.
func checkConditions(name string, source []byte) (problems []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	operators := map[int]map[token.Token]bool{}
	var parents []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			parents = parents[:len(parents)-1]
			return true
		}
		if e, isLogical := logical(n); isLogical {
			line := files.Position(e.OpPos).Line
			if operators[line] == nil {
				operators[line] = map[token.Token]bool{}
			}
			operators[line][e.Op] = true
			terms := countTerms(e)
			if terms > mostTerms && !isNamed(parents) {
				problems = append(problems,
					fmt.Sprintf("%s:%d: a condition of %d terms has no name", name, files.Position(e.Pos()).Line, terms),
				)
			}
		}
		parents = append(parents, n)
		return true
	})
	for line, found := range operators {
		if len(found) > 1 {
			problems = append(problems, fmt.Sprintf("%s:%d: the line mixes && and ||", name, line))
		}
	}
	slices.Sort(problems)
	return problems, nil
}

func logical(n ast.Node) (*ast.BinaryExpr, bool) {
	e, isBinary := n.(*ast.BinaryExpr)
	if !isBinary {
		return nil, false
	}
	return e, e.Op == token.LAND || e.Op == token.LOR
}

func countTerms(e ast.Expr) int {
	if p, isParenthesis := e.(*ast.ParenExpr); isParenthesis {
		return countTerms(p.X)
	}
	if b, isLogical := logical(e); isLogical {
		return countTerms(b.X) + countTerms(b.Y)
	}
	return 1
}

// isNamed reports whether an expression with these parents is the value of a variable, the result of a function, or part
// of a condition that was looked at already.
func isNamed(parents []ast.Node) bool {
	switch p := parents[len(parents)-1].(type) {
	case *ast.AssignStmt, *ast.ValueSpec, *ast.ReturnStmt, *ast.KeyValueExpr:
		return true
	case *ast.ParenExpr:
		return isNamed(parents[:len(parents)-1])
	case *ast.BinaryExpr:
		_, isLogical := logical(p)
		return isLogical
	}
	return false
}

func TestCheckConditions(t *testing.T) {
	const source = `package x
func f(a, b, c, d bool) bool {
	if a && b || c {
		return a || b || c || d
	}
	if a || b ||
		c || d {
		return false
	}
	named := a && b && c && d
	return named
}
`
	problems, err := checkConditions("x.go", []byte(source))
	want := []string{"x.go:3: the line mixes && and ||", "x.go:6: a condition of 4 terms has no name"}
	if err != nil || !slices.Equal(problems, want) {
		t.Errorf("%v, %q", err, problems)
	}
}
