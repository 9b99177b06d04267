package markers

import (
	"flag"
	"os"
	"reflect"
	"slices"
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

// TestKEPVerbs compares the verbs that an authorizer is asked for with those that the KEP has in its examples.
func TestKEPVerbs(t *testing.T) {
	set, err := ReadTypes("testdata/kep")
	if err != nil {
		t.Fatal(err)
	}
	pods := set.Tree("kep.example.com", "v1", "pods")
	for _, c := range []struct {
		path      []string
		parameter string
		want      permissions.Permission
	}{
		{[]string{"spec"}, "", permissions.Permission{Verb: "granular:specification", Depth: 1}},
		{[]string{"spec", "nodeName"}, "", permissions.Permission{Verb: "granular:nodeAssignment", Depth: 2}},
		{[]string{"metadata", "labels"}, "", permissions.Permission{Verb: "granular:labels", Depth: 2}},
		{[]string{"metadata", "labels", "*"}, "mycompany.example.com/FooLabel", permissions.Permission{Verb: "granular:label(mycompany.example.com)", Depth: 3}},
		{[]string{"spec", "triggerSelfDestructOnSecurityBreach"}, "", permissions.Permission{Verb: "granular:selfDestruction", Depth: 2, Excluded: true}},
		{[]string{"status", "conditions", "*"}, "Ready", permissions.Permission{Verb: "granular:condition(Ready)", Depth: 3}},
	} {
		at := pods
		for _, name := range c.path {
			at = at.Child(name)
		}
		if at == nil || at.Field == nil {
			t.Errorf("%v has no permission", c.path)
			continue
		}
		if got := at.Field.Permission(c.parameter); got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.path, got, c.want)
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
