package program

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
)

const text = `package a

func f(bad bool) int {
	if bad { // never
		g()
		return 1
	}
	g()
	return 2
}

func g() {}

func onlyTests() int {
	return 3
}
`

const profile = `mode: set
example.com/a/a.go:3.22,4.9 1 1
example.com/a/a.go:4.9,7.3 2 0
example.com/a/a.go:8.2,9.10 2 1
example.com/a/a.go:14.22,16.2 1 0
`

func read(t *testing.T) (*token.FileSet, []mutate.Source, *Report) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, "a.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	files := []mutate.Source{{Name: "a.go", Text: []byte(text), Tree: tree}}
	report, err := ReadProfile(strings.NewReader(profile), "example.com/a", fset, files, []string{"onlyTests"})
	if err != nil {
		t.Fatal(err)
	}
	return fset, files, report
}

func TestRead(t *testing.T) {
	_, _, report := read(t)
	if statements, covered := report.Total(); statements != 5 || covered != 3 {
		t.Errorf("%d of %d statements, want 3 of 5", covered, statements)
	}
	want := Block{File: "a.go", Function: "f", From: 5, To: 7, Code: "if bad { g()", Statements: 2}
	if len(report.Missed) != 1 || report.Missed[0] != want {
		t.Errorf("missed %+v, want %+v", report.Missed, want)
	}
}

func TestArgue(t *testing.T) {
	fset, files, report := read(t)
	load := func(code string) ([]Argument, error) {
		path := filepath.Join(t.TempDir(), "unreachable.yaml")
		content := "unreachable:\n  - {file: a.go, function: f, code: '" + code + "', reason: never bad}\n"
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadArguments(path, fset, files)
	}
	arguments, err := load("if bad { g()")
	if err != nil {
		t.Fatal(err)
	}
	argued, missing, wrong := report.Argue(arguments)
	if len(argued) != 1 || len(missing) != 0 || len(wrong) != 0 {
		t.Errorf("argued %v, missing %v, wrong %v", argued, missing, wrong)
	}
	arguments, err = load("g()") // the tail that begins in line 8, which was reached
	if err != nil {
		t.Fatal(err)
	}
	argued, missing, wrong = report.Argue(arguments)
	if len(argued) != 0 || len(missing) != 1 || len(wrong) != 1 {
		t.Errorf("argued %v, missing %v, wrong %v", argued, missing, wrong)
	}
	if _, err := load("if worse {"); err == nil {
		t.Error("an argument for statements that are not there was accepted")
	}
}
