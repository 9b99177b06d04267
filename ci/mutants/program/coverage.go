package program

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/cover"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
)

// Function is one function with its statements.
type Function struct {
	File, Name string
	Line       int
	Statements int
	Covered    int
}

// Block is a run of statements that was not reached.
type Block struct {
	File, Function string
	// From and To are the lines of its statements; Code is the line that opens the block, and that of the first
	// statement.
	From, To   int
	Code       string
	Statements int
}

// Report is what a profile says of a package.
type Report struct {
	Functions []Function
	// Missed are in the order of the source.
	Missed []Block
}

// ReadProfile reads a profile in the text format of go tool covdata. Files that are not given, and functions that
// are to be skipped, do not count.
func ReadProfile(profile io.Reader, prefix string, fset *token.FileSet, files []mutate.Source, skip []string) (*Report, error) {
	profiles, err := cover.ParseProfilesFromReader(profile)
	if err != nil {
		return nil, err
	}
	report := &Report{}
	for _, f := range files {
		i := slices.IndexFunc(profiles, func(p *cover.Profile) bool { return p.FileName == path.Join(prefix, f.Name) })
		if i < 0 {
			return nil, fmt.Errorf("nothing was counted in %s", f.Name)
		}
		report.file(fset, f, profiles[i], skip)
	}
	return report, nil
}

func (r *Report) file(fset *token.FileSet, f mutate.Source, p *cover.Profile, skip []string) {
	lines := strings.Split(string(f.Text), "\n")
	for _, decl := range f.Tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil || slices.Contains(skip, fn.Name.Name) {
			continue
		}
		from, to := fset.Position(fn.Body.Pos()), fset.Position(fn.Body.End())
		out := Function{File: f.Name, Name: mutate.FunctionName(fn), Line: fset.Position(fn.Pos()).Line}
		for _, b := range p.Blocks {
			if before(b.StartLine, b.StartCol, from.Line, from.Column) || before(to.Line, to.Column, b.EndLine, b.EndCol) || b.NumStmt == 0 {
				continue
			}
			out.Statements += b.NumStmt
			if b.Count > 0 {
				out.Covered += b.NumStmt
				continue
			}
			first := firstStatement(fset, fn, b)
			r.Missed = append(r.Missed, Block{
				File: f.Name, Function: out.Name, From: first, To: b.EndLine,
				Code: opening(lines, b.StartLine, first), Statements: b.NumStmt,
			})
		}
		r.Functions = append(r.Functions, out)
	}
	slices.SortStableFunc(r.Missed, func(a, b Block) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.From, b.From))
	})
}

func before(line, col, otherLine, otherCol int) bool {
	return line < otherLine || line == otherLine && col < otherCol
}

// firstStatement is the line of the first statement in a counted block.
func firstStatement(fset *token.FileSet, fn *ast.FuncDecl, b cover.ProfileBlock) int {
	line := b.EndLine
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if s, ok := n.(ast.Stmt); ok {
			if _, block := n.(*ast.BlockStmt); !block {
				p := fset.Position(s.Pos())
				if !before(p.Line, p.Column, b.StartLine, b.StartCol) {
					line = min(line, p.Line)
				}
			}
		}
		return true
	})
	return line
}

// Total is the number of statements, and how many of them were reached.
func (r *Report) Total() (statements, covered int) {
	for _, f := range r.Functions {
		statements += f.Statements
		covered += f.Covered
	}
	return statements, covered
}
