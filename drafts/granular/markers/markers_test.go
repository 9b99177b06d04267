package markers

import (
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/drafts/granular/model"
	"github.com/authzconf/authzconf/drafts/granular/permissions"
)

var update = flag.Bool("update", false, "write the golden file anew")

// TestKEP reads the examples of the KEP, and compares what is in them with a golden file, which is read back.
func TestKEP(t *testing.T) {
	const golden = "testdata/kep.yaml"
	set, err := ReadTypes("testdata/kep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := set.Format()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != string(text) {
		t.Errorf("got\n%s\nand %s says\n%s%v", text, golden, want, err)
	}
	again, err := permissions.Parse(golden, text)
	if err != nil || !reflect.DeepEqual(again, set) {
		t.Errorf("read back: %v, got %+v, want %+v", err, again, set)
	}
}

// TestKEPVerbs compares the permissions of changes of a Pod with those that the KEP has in its examples, from the most
// general to the most specific.
func TestKEPVerbs(t *testing.T) {
	set, err := ReadTypes("testdata/kep")
	if err != nil {
		t.Fatal(err)
	}
	pods := set.Tree("kep.example.com", "v1", "pods")
	for _, c := range []struct {
		name     string
		after    map[string]any
		verbs    string
		excluded bool
	}{
		{"everything in spec", map[string]any{"spec": map[string]any{"image": "a"}}, "granular:specification", false},
		{"nodeName", map[string]any{"spec": map[string]any{"nodeName": "a"}}, "granular:specification granular:nodeAssignment", false},
		{"a label", map[string]any{"metadata": map[string]any{"labels": map[string]any{"mycompany.example.com/FooLabel": "a"}}},
			"granular:objectMeta granular:labels granular:label(mycompany.example.com)", false},
		{"story 2", map[string]any{"spec": map[string]any{"triggerSelfDestructOnSecurityBreach": true}},
			"granular:specification granular:selfDestruction", true},
		{"a condition", map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready"}}}},
			"granular:status granular:conditions granular:condition(Ready)", false},
	} {
		chains := model.Update(pods, map[string]any{}, c.after)
		if len(chains) != 1 {
			t.Errorf("%s: the permissions are %+v, expected one chain of them", c.name, chains)
			continue
		}
		var verbs []string
		for _, p := range chains[0] {
			verbs = append(verbs, p.Verb)
		}
		if got := strings.Join(verbs, " "); got != c.verbs || chains[0].Excluded() != c.excluded {
			t.Errorf("%s: got %s, excluded %t, want %s, %t", c.name, got, chains[0].Excluded(), c.verbs, c.excluded)
		}
	}
	foos := set.Tree("kep.example.com", "v1", "foos").Child("spec")
	if foos.Field.Verb != "specification" || foos.Child("paused").Field.Verb != "pause" {
		t.Error("the type of spec, or an inlined field in it, has lost its permission")
	}
	if set.Tree("kep.example.com", "v1", "barren").Child("metadata") == nil {
		t.Error("the name of the resource is not the one that a marker gives")
	}
}

// TestKEPAgreesWithBuiltin changes a Pod, and compares the permissions that are needed by the KEP's markers with those by
// the descriptions that were written by hand.
func TestKEPAgreesWithBuiltin(t *testing.T) {
	read, err := ReadTypes("testdata/kep")
	if err != nil {
		t.Fatal(err)
	}
	ours := read.Tree("kep.example.com", "v1", "pods")
	byHand := parseBuiltin(t, "builtin.yaml").Tree("", "v1", "pods")
	for name, after := range map[string]map[string]any{
		"nothing":     {},
		"label":       {"metadata": map[string]any{"labels": map[string]any{"mycompany.example.com/FooLabel": "a"}}},
		"finalizer":   {"metadata": map[string]any{"finalizers": []any{"example.com/a", "b"}}},
		"node":        {"spec": map[string]any{"nodeName": "a"}},
		"undescribed": {"spec": map[string]any{"image": "a"}},
		"condition":   {"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready"}}}},
	} {
		got, want := model.Update(ours, map[string]any{}, after), model.Update(byHand, map[string]any{}, after)
		if !sameChains(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if isChange := len(after) > 0; isChange == (len(want) == 0) {
			t.Errorf("%s: the permissions are %+v", name, want)
		}
	}
}

// sameChains reports whether two lists have the same chains, in any order.
func sameChains(a, b []permissions.Chain) bool {
	isMissing := func(all []permissions.Chain) func(permissions.Chain) bool {
		return func(c permissions.Chain) bool {
			return !slices.ContainsFunc(all, func(other permissions.Chain) bool { return slices.Equal(c, other) })
		}
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, isMissing(b)) && !slices.ContainsFunc(b, isMissing(a))
}
