package docs

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/authzconf/authzconf"

// floor is one floor of the house, with its rooms: the top-level folders.
type floor struct {
	name  string
	rooms []room
}

type room struct{ name, what string }

// house is the design: what go list finds has to fit in.
var house = []floor{
	{"command line, and the door for Ginkgo", []room{
		{"cmd", "authzconf: parse, call, print, exit code"},
		{"suites", "a plan as Ginkgo specs, with labels"},
	}},
	{"products: what a user comes for", []room{
		{"conformance", "plan, matrix, schedule; upgrade paths; explore"},
		{"certify", "authorizers: policy, questions, judge, register"},
		{"loadgen", "storms: profiles, agents, pacer, shards"},
		{"deputy", "who acts for others: pre-flight, tunnel, attacks"},
		{"advice", "audit logs and RBAC → the least that is needed"},
		{"drafts", "KEPs that no release implements: 5681 and 3617"},
	}},
	{"engine: from a plan to evidence", []room{
		{"engine", "server, recorder, replay, audit log, nodes"},
		{"clusters", "providers: local, kind, existing, e2e-framework's"},
		{"reports", "evidence, verify, YAML, HTML, JUnit, statistics"},
	}},
	{"pure: no I/O beyond embedded files, no clock", []room{
		{"oracle", "a model of the API server that predicts requests"},
		{"verdicts", "scenario and evidence → verdict, blame"},
		{"fixtures", "manifests of the documents, audit policy"},
		{"scenarios", "one YAML file per behaviour, the strict loader"},
		{"internal", "functions on lists, the error of a wrong request"},
	}},
}

// outside are top-level folders that are not rooms of the house.
var outside = []string{"ci", "docs"}

// imports are the rooms that each room imports, tests apart.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	list.Dir = root
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	roomOf := func(path string) (string, bool) {
		rest, ok := strings.CutPrefix(path, module+"/")
		room, _, _ := strings.Cut(rest, "/")
		return room, ok
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(line)
		from, ok := roomOf(paths[0])
		if !ok || slices.Contains(outside, from) {
			continue
		}
		all[from] = append(all[from], "")
		for _, path := range paths[1:] {
			if to, ok := roomOf(path); ok && to != from && !slices.Contains(all[from], to) {
				all[from] = append(all[from], to)
			}
		}
	}
	return all
}

// drawing is the house as text: floors from the top, and for each room where its arrows lead.
func drawing(imports map[string][]string) string {
	const width = 66
	var b strings.Builder
	var order []string
	for _, f := range house {
		for _, r := range f.rooms {
			order = append(order, r.name)
		}
	}
	for i, f := range house {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", width/2) + "▼\n")
		}
		fmt.Fprintf(&b, "┌─ %s %s┐\n", f.name, strings.Repeat("─", width-len([]rune(f.name))-3))
		for _, r := range f.rooms {
			to := slices.DeleteFunc(slices.Clone(order), func(n string) bool { return !slices.Contains(imports[r.name], n) })
			if len(to) == len(order)-1 {
				to = []string{"every room below"}
			}
			line := fmt.Sprintf("│ %-12s %-*s│ → %s", r.name, width-14, r.what, strings.Join(to, " "))
			if len(to) == 0 {
				line = strings.TrimRight(line[:strings.LastIndex(line, "│")+len("│")], " ")
			}
			b.WriteString(line + "\n")
		}
		fmt.Fprintf(&b, "└%s┘\n", strings.Repeat("─", width))
	}
	return b.String()
}

// exceptions are the arrows along a floor that the design allows.
var exceptions = []string{"cmd → suites", "drafts → certify", "certify → loadgen"}

// TestArrowsGoDown wants every room on a floor, and no arrow that goes up or along, but for the exceptions.
// Within the engine's floor clusters and reports are used and do not know engine.
func TestArrowsGoDown(t *testing.T) {
	level := map[string]int{}
	for i, f := range house {
		for _, r := range f.rooms {
			level[r.name] = i + 1
		}
	}
	products, pure := 2, len(house)
	arrows := imports(t)
	for _, r := range house[products-1].rooms {
		if !slices.Contains(arrows["cmd"], r.name) {
			t.Errorf("cmd does not import the product %s: cmd/authzconf/products.go", r.name)
		}
	}
	for from, list := range arrows {
		if level[from] == 0 {
			t.Errorf("%s is not on a floor: docs/drawing_test.go", from)
		}
		for _, to := range list {
			if to == "" || level[from] < level[to] || slices.Contains(exceptions, from+" → "+to) {
				continue
			}
			inside := level[from] == level[to] &&
				(level[from] == pure ||
					level[from] > products && to != "engine")
			if !inside {
				t.Errorf("%s imports %s: an arrow only goes down", from, to)
			}
		}
	}
}

func TestDrawing(t *testing.T) {
	ComparePart(t, "architecture.md", "drawn by go test ./docs -update", "```text\n"+drawing(imports(t))+"```\n", *update)
}
