package markers

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/drafts/granular"
	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// parseBuiltin reads one of the files of descriptions that come with authzconf.
func parseBuiltin(t *testing.T, name string) *permissions.Set {
	t.Helper()
	data, err := fs.ReadFile(permissions.Descriptions, "descriptions/"+name)
	if err != nil {
		t.Fatal(err)
	}
	set, err := permissions.Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// readWidgets returns the descriptions of the Widget, by where they were read.
func readWidgets(t *testing.T) map[string]*permissions.Set {
	t.Helper()
	types, err := ReadTypes("testdata/widgets")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd, err := ReadCRDs("testdata/widgets.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*permissions.Set{"types": types, "crd": crd}
}

// TestWidgets compares what is read from markers with the descriptions of the Widget that were written by hand.
func TestWidgets(t *testing.T) {
	want := parseBuiltin(t, "widgets.yaml").Resources
	for name, got := range readWidgets(t) {
		if !reflect.DeepEqual(got.Resources, want) {
			t.Errorf("%s: got %+v, want %+v", name, got.Resources, want)
		}
	}
}

// TestWidgetSchema compares the marked definition of the Widget with the one that the scenarios install: without its
// markers it has the same versions.
func TestWidgetSchema(t *testing.T) {
	marked, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadFile("../widget.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := versionsOf(t, marked), versionsOf(t, installed); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestVerdicts decides attempts of the KEP's scenarios at Widgets with descriptions that were read from markers. The
// model says which fields change, and the reference enforcer asks for their permissions. Each outcome, and each question
// in its order, is the one that the scenario has, and has on a real API server with the descriptions written by hand.
func TestVerdicts(t *testing.T) {
	all, err := granular.Load(granular.Scenarios)
	if err != nil {
		t.Fatal(err)
	}
	general := parseBuiltin(t, "builtin.yaml").Resources
	for name, read := range readWidgets(t) {
		t.Run(name, func(t *testing.T) {
			set := &permissions.Set{Resources: append(slices.Clone(general), read.Resources...)}
			root := set.Tree("granular.authzconf.dev", "v1", "widgets")
			decided := map[granular.Outcome]int{}
			for _, s := range all {
				for _, a := range s.Attempts {
					if !isDecidable(s, a) {
						continue
					}
					outcome, checks := decide(t, root, s, a)
					if outcome != a.Outcome || !slices.Equal(checks, a.Checks) {
						t.Errorf("%s/%s: %s after %q, expected %s after %q", s.ID, a.Name, outcome, checks, a.Outcome, a.Checks)
					}
					decided[outcome]++
				}
			}
			t.Log(decided)
			if decided[granular.Allowed] < 10 || decided[granular.Denied] < 10 {
				t.Errorf("decided %v, expected at least 10 of each", decided)
			}
		})
	}
}

// needServer are the scenarios whose outcome follows from what an API server makes of the object: it keeps the status of
// an update, and fills in a default.
var needServer = []string{"kep-3617/requests/status-is-apart", "kep-3617/requests/update-with-defaults"}

// isDecidable reports whether an attempt can be decided without an API server: it changes a stored Widget by a merge
// patch, in its version, and names no subresource and no object.
func isDecidable(s *granular.Scenario, a *granular.Attempt) bool {
	if slices.Contains(needServer, s.ID) {
		return false
	}
	r := s.Wanted(a)
	isPatch := r.Verb == "mergePatch" || r.Verb == "update"
	isOrdinary := r.Version == "" && r.Subresource == "" && len(a.Names) == 0
	isWidget := s.Object["kind"] == "Widget" && s.Object["apiVersion"] == "granular.authzconf.dev/v1"
	return isPatch && isOrdinary && isWidget && a.Outcome != granular.Rejected && a.Reason == ""
}

// decide returns the outcome of an attempt, and the questions to the authorizer.
func decide(t *testing.T, root *permissions.Node, s *granular.Scenario, a *granular.Attempt) (granular.Outcome, []string) {
	t.Helper()
	var checks []string
	ask := func(verb string) (bool, error) {
		isGranted := slices.Contains(a.Grants, verb)
		checks = append(checks, map[bool]string{true: "yes ", false: "no "}[isGranted]+verb)
		return isGranted, nil
	}
	ordinary := map[string]string{"mergePatch": "patch", "update": "update"}[s.Wanted(a).Verb]
	chains := model.Update(root, patched(t, s.Object, map[string]any{}), patched(t, s.Object, s.Wanted(a).Change))
	if mayDoIt, _ := ask(ordinary); mayDoIt {
		chains = model.Excluded(chains)
	} else if mayTry, _ := ask(permissions.GeneralVerb); !mayTry {
		return granular.Denied, checks
	}
	var changed []enforcer.Changed
	for _, c := range chains {
		changed = append(changed, enforcer.Changed{Chain: c})
	}
	missing, err := enforcer.Decide(changed, ask)
	if err != nil {
		t.Fatal(err)
	}
	if missing != nil {
		return granular.Denied, checks
	}
	return granular.Allowed, checks
}

// patched returns an object after a merge patch, with the numbers of JSON.
func patched(t *testing.T, object map[string]any, patch any) (out map[string]any) {
	t.Helper()
	before, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	change, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, change)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// versionsOf returns the versions of a definition in a file, without the markers in their schemas.
func versionsOf(t *testing.T, data []byte) any {
	t.Helper()
	documents := bytes.Split(data, []byte("\n---\n"))
	var crd map[string]any
	if err := yaml.Unmarshal(documents[len(documents)-1], &crd); err != nil {
		t.Fatal(err)
	}
	dropMarkers(crd)
	return crd["spec"].(map[string]any)["versions"]
}

// dropMarkers removes the markers in a schema.
func dropMarkers(value any) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			dropMarkers(item)
		}
	case map[string]any:
		maps.DeleteFunc(v, func(key string, _ any) bool { return strings.HasPrefix(key, schemaPrefix) })
		for _, item := range v {
			dropMarkers(item)
		}
	}
}
