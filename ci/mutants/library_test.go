package mutants

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters/local"
)

// libraryPackages are those of k8s.io/apiserver that the vectors of KEP-5681 are held against.
const libraryPackages = "k8s.io/apiserver/pkg/authorization/"

// libraryArguments are why a mutant of the library is not detected: those of whole functions, by file and function, and
// those of single mutants by their key.
type libraryArguments struct {
	Functions map[string]string `json:"functions"`
	Mutants   map[string]string `json:"mutants"`
}

// TestLibraryMutants compares every mutant of the library with the vectors, as `authzconf conditions run --library` does with the
// original. What is not detected has to be argued in library.yaml, and what is argued must not be detected.
func TestLibraryMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	raw, err := os.ReadFile(filepath.Join(ownFolder, "library.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var argued libraryArguments
	if err := yaml.UnmarshalStrict(raw, &argued); err != nil {
		t.Fatal(err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	all, program, shared := buildLibrary(t, root)
	results := map[int]decided{}
	ask := func(first, last int) {
		run := exec.CommandContext(t.Context(), program, fmt.Sprint(first), fmt.Sprint(last), shared+".right")
		run.Env, run.Stderr = append(os.Environ(), SharedVariable+"="+shared), os.Stderr
		out, err := run.Output()
		if err != nil {
			t.Fatalf("mutants %d to %d: %v", first, last, err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			var r decided
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			results[r.Number] = r
		}
	}
	ask(0, len(all))
	if r := results[0]; r.Reason != "" {
		t.Fatalf("without a mutant: %s", r.Reason)
	}
	for _, m := range all {
		if m.Function == "(package)" { // it has its value before a number is chosen
			number := []byte{byte(m.Number), byte(m.Number >> 8), 0, 0}
			if err := os.WriteFile(shared, append(number, make([]byte, len(all)+1)...), 0o600); err != nil {
				t.Fatal(err)
			}
			ask(m.Number, m.Number)
		}
	}
	argued.judge(t, all, results)
}

// decided is what became of a mutant.
type decided struct {
	Number  int
	Reached bool
	Reason  string
}

// judge holds what became of the mutants to what is argued, and logs the score.
func (a *libraryArguments) judge(t *testing.T, all []Mutant, results map[int]decided) {
	type count struct{ made, values, texts, argued int }
	counts, used := map[string]*count{}, map[string]bool{}
	for _, m := range all {
		r, function := results[m.Number], m.File+":"+m.Function
		why, key := a.Mutants[m.Key], m.Key
		if why == "" {
			why, key = a.Functions[function], function
		}
		used[key] = true
		if counts[m.File] == nil {
			counts[m.File] = &count{}
		}
		c := counts[m.File]
		c.made++
		switch {
		case r.Reason != "" && key == m.Key && why != "":
			t.Errorf("%s is detected (%s), and argued not to be: %s", m.Key, r.Reason, why)
		case strings.HasPrefix(r.Reason, "texts: "):
			c.texts++
		case r.Reason != "":
			c.values++
		case why != "":
			c.argued++
		default:
			t.Errorf("%s is not detected (reached %t): line %d: %s: %s", m.Key, r.Reached, m.Line, m.Snippet, m.Change)
		}
	}
	for key := range a.Functions {
		if !used[key] {
			t.Errorf("library.yaml argues about %s, which has no mutants that are open", key)
		}
	}
	for key := range a.Mutants {
		if !used[key] {
			t.Errorf("library.yaml argues about %s, which is not a mutant", key)
		}
	}
	table, sum := "| file | mutants | by values | by words | argued |\n|---|--:|--:|--:|--:|\n", count{}
	for _, file := range slices.Sorted(maps.Keys(counts)) {
		c := counts[file]
		table += fmt.Sprintf("| `%s` | %d | %d | %d | %d |\n", file, c.made, c.values, c.texts, c.argued)
		sum = count{sum.made + c.made, sum.values + c.values, sum.texts + c.texts, sum.argued + c.argued}
	}
	table += fmt.Sprintf("| all | %d | %d | %d | %d |\n", sum.made, sum.values, sum.texts, sum.argued)
	t.Logf("%d open\n%s", sum.made-sum.values-sum.texts-sum.argued, table)
}

// buildLibrary builds drafts/conditional/library with all mutants in it, and is their list, the program, and the file that is
// shared with it. The library is compiled under paths of ours: nothing in the module cache can be laid over.
func buildLibrary(t *testing.T, root string) (all []Mutant, program, shared string) {
	t.Helper()
	names := []string{libraryPackages + "authorizer", libraryPackages + "union"}
	loaded, err := packages.Load(&packages.Config{
		Context: t.Context(), Dir: root, Env: append(os.Environ(), local.BuildEnv()...), Mode: packages.LoadSyntax,
	}, names...)
	if err != nil || len(loaded) != len(names) {
		t.Fatalf("%v: %v %v", names, err, loaded)
	}
	var sources []Source
	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, p := range loaded {
		for i, file := range p.CompiledGoFiles {
			sources = append(sources, Source{
				Name: filepath.Base(p.PkgPath) + "/" + filepath.Base(file),
				Text: read(file),
				Tree: p.Syntax[i],
				Info: p.TypesInfo,
				Pkg:  p.Types,
			})
		}
	}
	all, texts, err := Derive(loaded[0].Fset, sources, Options{HelperPath: ourModule + decisionProgram + "/" + HelperName})
	if err != nil {
		t.Fatal(err)
	}
	dir, overlay := t.TempDir(), map[string]string{}
	put := func(place string, text []byte) {
		file := filepath.Join(dir, fmt.Sprint(len(overlay), ".go"))
		for _, name := range names {
			text = bytes.ReplaceAll(text, []byte(`"`+name+`"`), []byte(`"`+ourModule+decisionProgram+"/"+filepath.Base(name)+`"`))
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, place)] = file
	}
	for _, s := range sources {
		put(decisionProgram+"/"+s.Name, texts[s.Name])
	}
	put(decisionProgram+"/"+HelperName+"/h.go", []byte(Helpers))
	put(decisionProgram+"/main.go", read(filepath.Join(ownFolder, "library.txt")))
	own, err := filepath.Glob("drafts/conditional/library/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range own {
		if !strings.HasSuffix(file, "_test.go") {
			put(file, read(file))
		}
	}
	const asked = "drafts/conditional/library/texts" // is a file of tests, which a program cannot import
	put(asked+".go", append(read(asked+"_test.go"), "\n// Texts are all that the library says.\nvar Texts = texts\n"...))
	raw, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	program, shared = filepath.Join(dir, "program"), filepath.Join(dir, "shared")
	for file, text := range map[string][]byte{program + ".json": raw, shared: make([]byte, SharedHeader+len(all)+1)} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(
		t.Context(),
		"go",
		"build",
		"-buildvcs=false",
		"-overlay",
		program+".json",
		"-o",
		program,
		"./"+decisionProgram,
	)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return all, program, shared
}
