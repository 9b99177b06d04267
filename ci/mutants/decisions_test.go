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
	"rbac.go:matchesResource:operand-dropped:4":                       noResource,
	"rbac.go:matchesResource:constant-changed:2":                      noResource + ", or for a subresource named mutant",
	"rbac.go:matchesPath:operand-dropped:2":                           starAlone,
	"rbac.go:matchesPath:constant-changed:1":                          starAlone,
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
	releases := local.Releases()
	pinned, err := (&local.Binaries{Progress: os.Stderr}).PinnedModule(t.Context(), releases[len(releases)-1])
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	put := func(place string, text []byte) {
		file := filepath.Join(dir, fmt.Sprint(len(overlay), ".go"))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, place)] = file
	}
	o := Options{HelperPath: ourModule + decisionProgram + "/" + HelperName}
	p, own := readSource(
		t,
		root,
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
	put("scenarios/rbac.go", texts[own.Name])
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
	// Both begin with 1: theirs are moved behind ours by a package of helpers of their own that adds an offset.
	put(decisionProgram+"/rbac/rbac.go", bytes.ReplaceAll(texts[rbac.Name], []byte(o.HelperPath+`"`), []byte(o.HelperPath+`2"`)))
	put(decisionProgram+"/"+HelperName+"/h.go", []byte(Helpers))
	put(
		decisionProgram+"/"+HelperName+"2/h.go",
		[]byte(strings.Replace(Helpers, "func On(n int) bool {", fmt.Sprintf("func On(n int) bool {\n\tn += %d", len(ours)), 1)),
	)
	program, err := os.ReadFile(filepath.Join(ownFolder, "decisions.txt"))
	if err != nil {
		t.Fatal(err)
	}
	put(decisionProgram+"/main.go", program)
	raw, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, shared, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "shared"), filepath.Join(dir, "program")
	all := append(ours, theirs...)
	if err := os.WriteFile(overlayFile, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shared, make([]byte, SharedHeader+len(all)+2), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlayFile, "-o", binary, "./"+decisionProgram)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	counts := map[string]*decisionCount{}
	for _, seed := range []string{"1", "2", "3"} {
		run := exec.CommandContext(t.Context(), binary, seed, fmt.Sprint(len(all)), fmt.Sprint(len(ours)+1))
		run.Env = append(os.Environ(), SharedVariable+"="+shared)
		run.Stderr = os.Stderr
		out, err := run.Output()
		if err != nil {
			t.Fatal(err)
		}
		judgeDecisions(t, seed, all, len(ours), out, counts)
	}
	table := "| decision code | change | mutants | rejected | equivalent, argued | share of the others |\n|---|---|--:|--:|--:|--:|\n"
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		c := counts[key]
		table += fmt.Sprintf(
			"| %s | %d | %d | %d | %.1f %% |\n",
			key,
			c.made,
			c.rejected,
			c.equivalent,
			100*float64(c.rejected)/float64(max(c.made-c.equivalent, 1)),
		)
	}
	t.Logf("three seeds\n%s", table)
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
