package granular

import (
	"encoding/json"
	"io/fs"
	"os"
	"slices"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/authzconf/authzconf/drafts/granular/enforcer"
	"github.com/authzconf/authzconf/drafts/granular/markers"
	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

// readMarkedWidgets returns the descriptions of the Widget that are read from markers, by where these are.
func readMarkedWidgets(t *testing.T) map[string]*permissions.Set {
	t.Helper()
	types, err := markers.ReadTypes("markers/testdata/widgets")
	if err != nil {
		t.Fatal(err)
	}
	const file = "markers/testdata/widgets.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd, err := markers.ReadCRDs(file, data)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*permissions.Set{"types": types, "crd": crd}
}

// listUnmarked returns the permissions that guard something in the built-in descriptions, and nothing in those that are
// read from markers.
func listUnmarked(t *testing.T, marked *permissions.Set) (verbs []string) {
	t.Helper()
	byHand, err := permissions.Load(permissions.Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, v := range marked.Verbs() {
		known[v.Verb] = true
	}
	for _, v := range byHand.Verbs() {
		if !known[v.Verb] {
			verbs = append(verbs, v.Verb)
		}
	}
	return verbs
}

// needsUnmarked reports whether some attempt of a scenario asks for one of the permissions.
func needsUnmarked(s *Scenario, verbs []string) bool {
	return slices.ContainsFunc(s.Attempts, func(a *Attempt) bool {
		return slices.ContainsFunc(verbs, func(verb string) bool {
			return slices.Contains(a.Checks, "yes "+verb) || slices.Contains(a.Checks, "no "+verb)
		})
	})
}

// describeEveryResource returns the built-in descriptions without those of the Widget.
func describeEveryResource(t *testing.T) *permissions.Set {
	t.Helper()
	data, err := fs.ReadFile(permissions.Descriptions, "descriptions/builtin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := permissions.Parse("builtin.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestMarkers decides attempts of the KEP's scenarios at Widgets with descriptions that were read from markers. The
// model says which fields change, and the reference enforcer asks for their permissions. Each outcome, and each question
// in its order, is the one that the scenario has, and has on a real API server with the descriptions written by hand.
func TestMarkers(t *testing.T) {
	general := describeEveryResource(t)
	for name, read := range readMarkedWidgets(t) {
		t.Run(name, func(t *testing.T) {
			set := &permissions.Set{Resources: append(slices.Clone(general.Resources), read.Resources...)}
			root := set.Tree("granular.authzconf.dev", "v1", "widgets")
			unmarked := listUnmarked(t, set)
			decided := map[Outcome]int{}
			for _, s := range builtIn(t) {
				if needsUnmarked(s, unmarked) {
					continue
				}
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
			if decided[Allowed] < 10 || decided[Denied] < 10 {
				t.Errorf("decided %v, expected at least 10 of each", decided)
			}
		})
	}
}

// needServer are the scenarios whose outcome follows from what an API server makes of the object: it keeps the status of
// an update, and fills in a default.
var needServer = []string{"kep-3617/requests/status-is-apart", "kep-3617/requests/update-with-defaults", "kep-3617/levels/values-of-status"}

// isDecidable reports whether an attempt can be decided without an API server: it changes a stored Widget by a merge
// patch, in its version, and names no subresource and no object.
func isDecidable(s *Scenario, a *Attempt) bool {
	if slices.Contains(needServer, s.ID) {
		return false
	}
	r := s.RequestOf(a)
	isPatch := r.Verb == "mergePatch" || r.Verb == "update"
	isOrdinary := r.Version == "" && r.Subresource == "" && len(a.Names) == 0
	isWidget := s.Object["kind"] == "Widget" && s.Object["apiVersion"] == "granular.authzconf.dev/v1"
	return isPatch && isOrdinary && isWidget && a.Outcome != Rejected && a.Reason == ""
}

// decide returns the outcome of an attempt, and the questions to the authorizer.
func decide(t *testing.T, root *permissions.Node, s *Scenario, a *Attempt) (Outcome, []string) {
	t.Helper()
	var checks []string
	ask := func(verb string) (bool, error) {
		isGranted := slices.Contains(a.Grants, verb)
		checks = append(checks, map[bool]string{true: "yes ", false: "no "}[isGranted]+verb)
		return isGranted, nil
	}
	ordinary := map[string]string{"mergePatch": "patch", "update": "update"}[s.RequestOf(a).Verb]
	chains := model.Update(root, patched(t, s.Object, map[string]any{}), patched(t, s.Object, s.RequestOf(a).Change))
	if mayDoIt, _ := ask(ordinary); mayDoIt {
		chains = model.Excluded(chains)
	} else if mayTry, _ := ask(permissions.GeneralVerb); !mayTry {
		return Denied, checks
	}
	var changed []enforcer.ChangedField
	for _, c := range chains {
		changed = append(changed, enforcer.ChangedField{Chain: c})
	}
	missing, err := enforcer.Decide(changed, ask)
	if err != nil {
		t.Fatal(err)
	}
	if missing != nil {
		return Denied, checks
	}
	return Allowed, checks
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
