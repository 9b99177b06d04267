package gates

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
)

var update = flag.Bool("update", false, "write gates.yaml from the source code of the pinned releases")

// sources are the files that define the gates of kube-apiserver, by the module that has them.
var sources = map[string]string{
	"k8s.io/kubernetes":              "pkg/features/kube_features.go",
	"k8s.io/apiserver":               "pkg/features/kube_features.go",
	"k8s.io/apiextensions-apiserver": "pkg/features/kube_features.go",
}

const head = `# The feature gates of kube-apiserver: since which version each is what. Written by
# go test ./engine/gates -update from the source code of the pinned releases; a test compares it with them.
`

func TestTableIsThatOfTheReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads the modules of all releases")
	}
	found := map[string]map[string]string{}
	for _, r := range local.Releases() {
		readRelease(t, r, found)
	}
	var text strings.Builder
	text.WriteString(head)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		var entries []string
		for _, since := range sortedVersions(found[name]) {
			entries = append(entries, fmt.Sprintf("%q: %s", since, found[name][since]))
		}
		fmt.Fprintf(&text, "%s: {%s}\n", name, strings.Join(entries, ", "))
	}
	if *update {
		if err := os.WriteFile("gates.yaml", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text.String() != string(tableYAML) {
		t.Error("gates.yaml is not what the releases have: go test ./engine/gates -update")
	}
}

// readRelease adds what the source code of a release says of the gates that it has.
func readRelease(t *testing.T, r local.Release, found map[string]map[string]string) {
	t.Helper()
	b := &local.Binaries{}
	module, err := b.PinnedModule(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(sources)) {
		dir, err := b.GoOutput(t.Context(), module, "list", "-m", "-f", "{{.Dir}}", path)
		if dir = strings.TrimSpace(dir); err != nil || dir == "" {
			t.Skipf("the module %s of %s is not there: %v", path, r, err)
		}
		for name, entries := range parseGates(t, filepath.Join(dir, sources[path])) {
			seen[name] = true
			found[name] = mergeEntries(found[name], entries, r.Minor)
		}
	}
	for name, entries := range found {
		if !seen[name] && entries[last(entries)] != removed {
			entries[r.Minor] = removed
		}
	}
}

func last(entries map[string]string) string { return sortedVersions(entries)[len(entries)-1] }

// mergeEntries adds what a release says of a gate to what older ones have said, up to the minor of the release. Of what was
// before the oldest release only the last entry counts.
func mergeEntries(before, entries map[string]string, minor string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, before)
	oldest := version.MustParseGeneric(local.Releases()[0].Minor)
	ancient := ""
	for _, since := range sortedVersions(entries) {
		v := version.MustParseGeneric(since)
		switch {
		case version.MustParseGeneric(minor).LessThan(v): // announced, and not there yet
		case !oldest.LessThan(v):
			ancient = since
		default:
			merged[since] = cmp.Or(merged[since], entries[since])
		}
	}
	if ancient != "" && len(before) == 0 {
		merged[ancient] = entries[ancient]
	}
	return merged
}

// parseGates returns the gates that a file defines: from the constants their names, and from the literal of
// featuregate.VersionedSpecs of each what it is since which version.
func parseGates(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names, gates := map[string]string{}, map[string]map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is && len(spec.Names) == 1 && len(spec.Values) == 1 {
			if text, is := spec.Values[0].(*ast.BasicLit); is && text.Kind == token.STRING {
				names[spec.Names[0].Name], _ = strconv.Unquote(text.Value)
			}
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		pair, is := n.(*ast.KeyValueExpr)
		if !is {
			return true
		}
		key, isName := pair.Key.(*ast.Ident)
		specs, isList := pair.Value.(*ast.CompositeLit)
		if !isName || !isList || names[key.Name] == "" {
			return true
		}
		for _, element := range specs.Elts {
			if spec, is := element.(*ast.CompositeLit); is {
				if since, text := readSpec(spec); since != "" {
					if gates[names[key.Name]] == nil {
						gates[names[key.Name]] = map[string]string{}
					}
					gates[names[key.Name]][since] = text
				}
			}
		}
		return true
	})
	if len(gates) == 0 {
		t.Fatalf("%s defines no gate", path)
	}
	return gates
}

// readSpec reads {Version: version.MustParse("1.36"), Default: true, PreRelease: featuregate.Beta, LockToDefault: true}.
func readSpec(spec *ast.CompositeLit) (since, text string) {
	stage, state, lock := "ALPHA", "off", ""
	for _, element := range spec.Elts {
		field, is := element.(*ast.KeyValueExpr)
		if !is {
			continue
		}
		value, _ := field.Value.(*ast.Ident)
		isTrue := value != nil && value.Name == "true"
		switch name := field.Key.(*ast.Ident).Name; {
		case name == "Version":
			if call, is := field.Value.(*ast.CallExpr); is && len(call.Args) == 1 {
				since, _ = strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
			}
		case name == "Default" && isTrue:
			state = "on"
		case name == "LockToDefault" && isTrue:
			lock = " locked"
		case name == "PreRelease":
			if selector, is := field.Value.(*ast.SelectorExpr); is {
				stage = strings.ToUpper(selector.Sel.Name)
			}
		}
	}
	return since, stage + " " + state + lock
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		name, kubernetes string
		want             Gate
		isThere          bool
	}{
		{"ConstrainedImpersonation", "1.34", Gate{}, false},
		{"ConstrainedImpersonation", "1.35.4", Gate{Name: "ConstrainedImpersonation", Stage: "ALPHA", Default: scenarios.GateOff}, true},
		{"ConstrainedImpersonation", "1.36", Gate{Name: "ConstrainedImpersonation", Stage: "BETA", Default: scenarios.GateOn}, true},
		{"ConstrainedImpersonation", "1.38.0-alpha.2", Gate{Name: "ConstrainedImpersonation", Stage: "BETA", Default: scenarios.GateOn}, true},
		{"DRAResourceClaimGranularStatusAuthorization", "1.35", Gate{}, false},
		{"DRAResourceClaimGranularStatusAuthorization", "1.37.1", Gate{Name: "DRAResourceClaimGranularStatusAuthorization", Stage: "BETA", Default: scenarios.GateOn}, true},
		{"AuthorizeNodeWithSelectors", "1.33", Gate{Name: "AuthorizeNodeWithSelectors", Stage: "BETA", Default: scenarios.GateOn}, true},
		{"AuthorizeNodeWithSelectors", "1.34", Gate{Name: "AuthorizeNodeWithSelectors", Stage: "GA", Default: scenarios.GateOn, IsLocked: true}, true},
		{"NoSuchGate", "1.37", Gate{}, false},
	} {
		if got, isThere := Find(test.name, test.kubernetes); got != test.want || isThere != test.isThere {
			t.Errorf("%s in %s: %+v, %t, want %+v, %t", test.name, test.kubernetes, got, isThere, test.want, test.isThere)
		}
	}
}

func TestState(t *testing.T) {
	const granular, selectors = "DRAResourceClaimGranularStatusAuthorization", "AuthorizeNodeWithSelectors"
	for _, test := range []struct {
		gate, kubernetes string
		asked, want      scenarios.Gate
	}{
		{granular, "1.35", scenarios.GateDefault, scenarios.GateOff},
		{granular, "1.36", scenarios.GateDefault, scenarios.GateOn},
		{granular, "1.36", scenarios.GateOff, scenarios.GateOff},
		{granular, "1.37", scenarios.GateOn, scenarios.GateOn},
		{selectors, "1.36", scenarios.GateDefault, scenarios.GateOn},
		{selectors, "1.37", scenarios.GateDefault, scenarios.GateOn}, // removed, because it is always on
	} {
		if got := State(test.gate, test.kubernetes, test.asked); got != test.want {
			t.Errorf("%s %s asked for as %s: %s, want %s", test.gate, test.kubernetes, test.asked, got, test.want)
		}
	}
}

func TestChecks(t *testing.T) {
	for name, hint := range map[string]string{
		"ConstrainedImpersonation":   "",
		"constrainedimpersonation":   "is it ConstrainedImpersonation?",
		"AuthorizeNodeWithSelector":  "is it AuthorizeNodeWithSelectors?",
		"SomethingThatNeverWasThere": "name one as --feature-gates of kube-apiserver has it",
	} {
		got := ""
		if err := CheckName(name); err != nil {
			got = err.Error()
		}
		if (got == "") != (hint == "") || !strings.Contains(got, hint) {
			t.Errorf("%s: %q, want %q", name, got, hint)
		}
	}
	for _, test := range []struct {
		name, kubernetes string
		asked            scenarios.Gate
		want             string
	}{
		{"ConstrainedImpersonation", "1.36", scenarios.GateOff, ""},
		{"ConstrainedImpersonation", "1.34", scenarios.GateDefault, ""},
		{"ConstrainedImpersonation", "1.34", scenarios.GateOn, "Kubernetes 1.34 has no feature gate ConstrainedImpersonation, which came with 1.35: leave the gate out"},
		{"AuthorizeNodeWithSelectors", "1.34", scenarios.GateOff, "Kubernetes 1.34 has the feature gate AuthorizeNodeWithSelectors locked on: it cannot be off"},
		{"AuthorizeNodeWithSelectors", "1.34", scenarios.GateOn, ""},
	} {
		got := ""
		if err := CheckState(test.name, test.kubernetes, test.asked); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s %s %s: %q, want %q", test.name, test.kubernetes, test.asked, got, test.want)
		}
	}
}
