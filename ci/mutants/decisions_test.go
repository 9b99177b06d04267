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

	"github.com/authzconf/authzconf/clusters/local"
)

const ourModule = "github.com/authzconf/authzconf/"

// decisionProgram is where the program would be, which is only ever in an overlay.
const decisionProgram = "ci/mutants/zzprogram"

// readSource reads one file of a package.
func readSource(t *testing.T, dir, pkg, file string, functions ...string) (*packages.Package, Source) {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{
		Context: t.Context(), Dir: dir, Env: append(os.Environ(), local.BuildEnv()...), Mode: packages.LoadSyntax,
	}, pkg)
	if err != nil || len(loaded) != 1 || len(loaded[0].Errors) > 0 {
		t.Fatalf("%s: %v %v", pkg, err, loaded)
	}
	p := loaded[0]
	for i, name := range p.CompiledGoFiles {
		if filepath.Base(name) != file {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return p, Source{Name: name, Text: text, Tree: p.Syntax[i], Info: p.TypesInfo, Pkg: p.Types, Functions: functions}
	}
	t.Fatalf("%s has no %s", pkg, file)
	return nil, Source{}
}

// alike are mutants that decide as the original does, or that no question of a policy of RBAC can tell from it.
var alike = map[string]string{
	"rbac.go:Grant.Covers:condition-dropped:1":                        ofWhoAsks,
	"rbac.go:Grant.Covers:return-negated:1":                           ofWhoAsks,
	"rbac.go:Subject.Is:operand-dropped:1":                            ofWhoAsks,
	"rbac.go:Subject.Is:operand-dropped:2":                            ofWhoAsks,
	"rbac.go:Subject.Is:constant-changed:2":                           ofWhoAsks,
	"rbac.go:Grant.Covers:operand-dropped:2":                          "no grant is for paths in a namespace: RBAC has none",
	"rbac.go:matchesResource:operand-dropped:1":                       noResource,
	"rbac.go:matchesResource:constant-changed:1":                      noResource + ", or for a subresource named mutant",
	"evaluation_helpers.go:ResourceMatches:condition-dropped:3":       noResource,
	"evaluation_helpers.go:NonResourceURLMatches:condition-dropped:1": starAlone,
	"evaluation_helpers.go:NonResourceURLMatches:constant-changed:1":  starAlone,
}

const (
	ofWhoAsks  = "the policy looks only at the grants of who asks"
	noResource = "it differs for a grant of the resource */, which no API has"
	starAlone  = "a * that stands alone is one at the end, behind nothing"
)

// TestDecisionMutants asks all mutants, and writes down which question kills each.
func TestDecisionMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	b := newDecisionBuild(t)
	b.derive(t)
	b.build(t)
	counts := map[string]*decisionCount{}
	for _, seed := range []string{"1", "2", "3"} {
		judgeDecisions(t, seed, b.mutants, b.ours, b.run(t, seed), counts)
	}
	table := "| decision code | change | mutants | rejected | equivalent, argued | share of the others |\n|---|---|--:|--:|--:|--:|\n"
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		c := counts[key]
		share := 100 * float64(c.rejected) / float64(max(c.made-c.equivalent, 1))
		table += fmt.Sprintf("| %s | %d | %d | %d | %.1f %% |\n", key, c.made, c.rejected, c.equivalent, share)
	}
	t.Logf("three seeds\n%s", table)
}

// decisionBuild builds the program that asks the mutants of the code that decides: ours, and that of RBAC.
type decisionBuild struct {
	// root is this folder, dir a temporary one.
	root, dir string
	// overlay has the files that replace others, by the place of these.
	overlay map[string]string
	// mutants are all mutants. The first of them are ours.
	mutants []Mutant
	ours    int
}

// newDecisionBuild returns a build without mutants.
func newDecisionBuild(t *testing.T) *decisionBuild {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return &decisionBuild{root: root, dir: t.TempDir(), overlay: map[string]string{}}
}

// put replaces the file at a place in the program.
func (b *decisionBuild) put(t *testing.T, place string, text []byte) {
	t.Helper()
	file := filepath.Join(b.dir, fmt.Sprint(len(b.overlay), ".go"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.overlay[filepath.Join(b.root, place)] = file
}

// derive makes the mutants of the code that decides, and puts the derived code into the program.
func (b *decisionBuild) derive(t *testing.T) {
	t.Helper()
	releases := local.Releases()
	pinned, err := (&local.Binaries{Progress: os.Stderr}).PinnedModule(t.Context(), releases[len(releases)-1])
	if err != nil {
		t.Fatal(err)
	}
	o := Options{HelperPath: ourModule + decisionProgram + "/" + HelperName}
	p, own := readSource(
		t,
		b.root,
		ourModule+"scenarios",
		"rbac.go",
		"Grant.Covers",
		"Subject.Is",
		"matches",
		"matchesResource",
		"matchesPath",
	)
	ours, texts, err := Derive(p.Fset, []Source{own}, o)
	if err != nil {
		t.Fatal(err)
	}
	b.put(t, "scenarios/rbac.go", texts[own.Name])
	p, rbac := readSource(
		t,
		pinned,
		"k8s.io/kubernetes/pkg/apis/rbac/v1",
		"evaluation_helpers.go",
		"VerbMatches",
		"APIGroupMatches",
		"ResourceMatches",
		"ResourceNameMatches",
		"NonResourceURLMatches",
	)
	theirs, texts, err := Derive(p.Fset, []Source{rbac}, o)
	if err != nil {
		t.Fatal(err)
	}
	b.mutants, b.ours = append(ours, theirs...), len(ours)
	// Both begin with 1: theirs are moved behind ours by a package of helpers of their own that adds an offset.
	b.put(t, decisionProgram+"/rbac/rbac.go", bytes.ReplaceAll(texts[rbac.Name], []byte(o.HelperPath+`"`), []byte(o.HelperPath+`2"`)))
	b.put(t, decisionProgram+"/"+HelperName+"/h.go", []byte(Helpers))
	const on = "func On(n int) bool {"
	withOffset := strings.Replace(Helpers, on, fmt.Sprintf("%s\n\tn += %d", on, b.ours), 1)
	b.put(t, decisionProgram+"/"+HelperName+"2/h.go", []byte(withOffset))
}

// program and shared are the files of the program, and of what it shares with who runs it.
func (b *decisionBuild) program() string { return filepath.Join(b.dir, "program") }
func (b *decisionBuild) shared() string  { return filepath.Join(b.dir, "shared") }

// build compiles the program.
func (b *decisionBuild) build(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(ownFolder, "decisions.txt"))
	if err != nil {
		t.Fatal(err)
	}
	b.put(t, decisionProgram+"/main.go", program)
	raw, err := json.Marshal(map[string]any{"Replace": b.overlay})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(b.dir, "overlay.json")
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.shared(), make([]byte, SharedHeader+len(b.mutants)+2), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", b.program(), "./"+decisionProgram)
	build.Dir = b.root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// run returns what the program prints for a seed: a line for each mutant.
func (b *decisionBuild) run(t *testing.T, seed string) []byte {
	t.Helper()
	run := exec.CommandContext(t.Context(), b.program(), seed, fmt.Sprint(len(b.mutants)), fmt.Sprint(b.ours+1))
	run.Env = append(os.Environ(), SharedVariable+"="+b.shared())
	run.Stderr = os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decisionCount is what became of the mutants of a kind, over all seeds.
type decisionCount struct{ made, rejected, equivalent int }

// judgeDecisions holds the results to what is argued to be equivalent.
func judgeDecisions(t *testing.T, seed string, all []Mutant, ours int, out []byte, counts map[string]*decisionCount) {
	killed := [2]int{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var r struct {
			Number  int
			Reached bool
			Reason  string
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Number == 0 {
			if r.Reason != "" {
				t.Fatalf("seed %s: without a mutant: %s", seed, r.Reason)
			}
			continue
		}
		m := all[r.Number-1]
		key := fmt.Sprintf("%s:%s", filepath.Base(m.File), strings.SplitN(m.Key, ":", 2)[1])
		code := "the reference's"
		if r.Number > ours {
			code = "RBAC's"
		}
		if code += " | " + m.Operator; counts[code] == nil {
			counts[code] = &decisionCount{}
		}
		c := counts[code]
		if c.made++; alike[key] != "" {
			c.equivalent++
		} else if r.Reason != "" {
			c.rejected++
		}
		switch why := alike[key]; {
		case r.Reason != "" && why != "":
			t.Errorf("seed %s: %s is killed (%s), and argued to be equivalent: %s", seed, key, r.Reason, why)
		case r.Reason != "":
			if killed[0]++; r.Number > ours {
				killed[0]--
				killed[1]++
			}
		case why == "":
			t.Errorf("seed %s: %s survives (reached %t): line %d: %s: %s", seed, key, r.Reached, m.Line, m.Snippet, m.Change)
		}
	}
	t.Logf("seed %s: the reference's: %d of %d killed; RBAC's: %d of %d", seed, killed[0], ours, killed[1], len(all)-ours)
}
