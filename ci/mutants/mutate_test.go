package mutants

import (
	"encoding/binary"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// standard imports the standard library. It is read from its source, which takes
// seconds, so all tests share one.
var standard = sync.OnceValues(func() (*token.FileSet, types.Importer) {
	fset := token.NewFileSet()
	if build.Default.GOROOT == "" { // with -trimpath a program does not know it
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			panic(err)
		}
		build.Default.GOROOT = strings.TrimSpace(string(root))
	}
	return fset, importer.ForCompiler(fset, "source", nil)
})

// deriveOne derives the mutants of one file that imports the standard library only.
func deriveOne(t *testing.T, text string, o Options, change ...func(*Source)) ([]Mutant, string) {
	t.Helper()
	fset, imports := standard()
	tree, err := parser.ParseFile(fset, "a.go", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	pkg, err := config.Check("a", fset, []*ast.File{tree}, info)
	if err != nil {
		t.Fatal(err)
	}
	if o.HelperPath == "" {
		o.HelperPath = "example.com/a/" + HelperName
	}
	source := Source{Name: "a.go", Text: []byte(text), Tree: tree, Info: info, Pkg: pkg}
	for _, c := range change {
		c(&source)
	}
	mutants, texts, err := Derive(fset, []Source{source}, o)
	if err != nil {
		t.Fatal(err)
	}
	return mutants, string(texts["a.go"])
}

// TestOperators derives from one construct each.
func TestOperators(t *testing.T) {
	tests := map[string]struct {
		body string
		want []string // operator: snippet change
	}{
		"if": {
			"if a > 0 { return a }; return 0",
			[]string{"condition-forced: a > 0 always true", "condition-dropped: a > 0 always false", "comparison-shifted: a > 0 > → >="},
		},
		"and": {
			"if p && q { return 1 }; return 0",
			[]string{"condition-negated: p && q negated", "operand-dropped: p always true", "operand-dropped: q always true"},
		},
		"or":   {"if p || q { return 1 }; return 0", []string{"operand-dropped: p always false"}},
		"call": {"println(); return 0", []string{"call-removed: println() left out"}},
		"assignment": {
			"a = 3; return a",
			[]string{"assignment-removed: a = 3 left out", "constant-changed: 3 → 3 + 1", "constant-changed: 3 → 3 - 1"},
		},
		"big number": {"return 10_000", []string{"constant-changed: 10_000 → 1"}},
		"text": {
			`return len(strings.ToLower("X"))`,
			[]string{`call-bypassed: strings.ToLower("X") its first argument`, `constant-changed: "X" → "X" + "x"`},
		},
		"loop": {
			"for _, s := range list { if s == `` { continue }; a++ }; return a",
			[]string{
				"loop-skipped: list zero value",
				"loop-first-skipped: list begins with the second element",
				"loop-once: list ends after the first turn",
				"continue-to-break: continue break",
			},
		},
		"slice": {
			"return len([]string{`a`, `b`})",
			[]string{
				"element-dropped: `a` left out",
				"elements-swapped: `a` exchanged with the next element",
				"element-dropped: `b` left out",
			},
		},
		"struct":   {"return pair{x: a, text: list[0]}.x", []string{"field-zeroed: a zero value"}},
		"concat":   {"return len(list[0] + `b`)", []string{"operand-emptied: list[0] zero value"}},
		"argument": {"return f(a)", []string{"argument-zeroed: a zero value", "call-bypassed: f(a) its first argument"}},
		"capacity": {"return len(make([]int, 3, 77))", []string{"constant-changed: 3 → 3 + 1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mutants, _ := deriveOne(t, frame(test.body), Options{Prose: []string{"text"}})
			var got []string
			for _, m := range mutants {
				got = append(got, m.Operator+": "+m.Snippet+" "+m.Change)
			}
			for _, want := range test.want {
				if !slices.Contains(got, want) {
					t.Errorf("no mutant %q among\n%s", want, strings.Join(got, "\n"))
				}
			}
			i := slices.IndexFunc(got, func(s string) bool {
				return strings.HasPrefix(s, "constant-changed: 77") ||
					strings.Contains(s, "list[0] zero") && name == "struct"
			})
			if i >= 0 {
				t.Errorf("%s: a capacity or a description was changed", got[i])
			}
		})
	}
}

// frame is a file with the body in a function.
func frame(body string) string {
	return "package a\n\nimport \"strings\"\n\nvar _ = strings.ToLower\n\ntype pair struct { x int; text string }\n\n" +
		"func f(a int) int { return a }\n\nfunc g(a int, p, q bool, list []string) int {\n" + body + "\n}\n"
}

// TestErrors swaps errors and none.
func TestErrors(t *testing.T) {
	mutants, _ := deriveOne(t, `package a

import "errors"

func f(bad bool) (string, error) {
	if bad {
		return "", errors.New("bad")
	}
	return g(), nil
}

func g() string { return "x" }

func onlyTests() string { return "y" }
`, Options{}, func(s *Source) { s.LeaveOut = []string{"onlyTests"} })
	var got []string
	for _, m := range mutants {
		got = append(got, m.Key)
	}
	for _, want := range []string{"a.go:f:return-no-error:1", "a.go:f:return-error:1", "a.go:f:return-zero:1", "a.go:g:constant-changed:1"} {
		if !slices.Contains(got, want) {
			t.Errorf("no mutant %s among %v", want, got)
		}
	}
	if slices.ContainsFunc(got, func(k string) bool { return strings.Contains(k, "onlyTests") }) {
		t.Errorf("a skipped function was mutated: %v", got)
	}
}

// TestChoice changes the functions and statements that are named.
func TestChoice(t *testing.T) {
	const text = "package a\n\nconst c = 1\n\ntype T struct{}\n\nfunc (T) f() { println(2); println(3) }\n\nfunc f() { println(4) }\n"
	for name, test := range map[string]struct {
		functions []string
		within    string
		want      []string
	}{
		"a name":      {[]string{"f"}, "", []string{"T.f", "T.f", "f"}},
		"a method":    {[]string{"T.f"}, "", []string{"T.f", "T.f"}},
		"a statement": {[]string{"f"}, "3", []string{"T.f"}},
	} {
		mutants, _ := deriveOne(t, text, Options{Quiet: []string{"println"}}, func(s *Source) {
			s.Functions = test.functions
			s.Within = test.within
		})
		var got []string
		for _, m := range mutants {
			got = append(got, m.Function)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: mutants of %v, want %v", name, got, test.want)
		}
	}
}

// TestQuietCallsAreOnlyRemoved leaves the texts of log lines alone.
func TestQuietCallsAreOnlyRemoved(t *testing.T) {
	mutants, _ := deriveOne(t, "package a\n\nimport \"log\"\n\nfunc f() { log.Printf(\"%d\", 7) }\n", Options{Quiet: []string{"log."}})
	if len(mutants) != 1 || mutants[0].Operator != "call-removed" {
		t.Errorf("mutants %v, want the removed call alone", mutants)
	}
}

// exampleProgram prints one line for each thing that mutants change.
const exampleProgram = `package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

const limit = 3

type key struct{ name, group string }

func (k key) String() string { return k.name + "/" + k.group }

func check(names []string) ([]key, error) {
	if len(names) >= limit {
		return nil, errors.New("too many")
	}
	var keys []key
	for _, n := range names {
		if n == "" || n == "*" {
			continue
		}
		keys = append(keys, key{name: strings.ToLower(n), group: "g"})
	}
	return keys, nil
}

func main() {
	fmt.Println(check([]string{"A", "", "B"}[:2]))
	fmt.Println(check([]string{"", "C"}))
	fmt.Println(check([]string{"*", "C"}))
	fmt.Println(check([]string{"A", "C"}))
	fmt.Println(check([]string{"A", "B", "C"}))
	if len(os.Args) > 5 {
		os.Exit(1)
	}
}
`

// TestProgram builds a whole program with its mutants: with none chosen it does
// what the original does, most mutants do something else, and those that are
// reached are noted.
func TestProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	mutants, text := deriveOne(t, exampleProgram, Options{HelperPath: "example.com/a/" + HelperName})
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/a\n\ngo 1.24\n", "a.go": text, filepath.Join(HelperName, "h.go"): Helpers,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "a", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, text)
	}
	run := func(env ...string) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "a"))
		cmd.Env = append(os.Environ(), env...)
		out, _ := cmd.CombinedOutput() // a panic is an outcome too
		return string(out)
	}
	shared := filepath.Join(dir, "shared")
	if err := os.WriteFile(shared, make([]byte, SharedHeader+len(mutants)+1), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "[a/g] <nil>\n[c/g] <nil>\n[c/g] <nil>\n[a/g c/g] <nil>\n[] too many\n"
	if got := run(SharedVariable + "=" + shared); got != want {
		t.Fatalf("the unmutated program printed\n%s, not\n%s", got, want)
	}
	notes, err := os.ReadFile(shared)
	if err != nil {
		t.Fatal(err)
	}
	different := 0
	for _, m := range mutants {
		binary.LittleEndian.PutUint32(notes, uint32(m.Number))
		if err := os.WriteFile(shared, notes, 0o600); err != nil {
			t.Fatal(err)
		}
		if run(SharedVariable+"="+shared) != want {
			different++
			if notes[SharedHeader+m.Number] == 0 {
				t.Errorf("%s makes a difference, but was not noted as reached", m.Key)
			}
		}
	}
	if different < len(mutants)*2/3 {
		t.Errorf("only %d of %d mutants make a difference", different, len(mutants))
	}
	t.Logf("%d of %d mutants make a difference", different, len(mutants))
}
