package permissions

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

var update = flag.Bool("update", false, "write the golden file anew")

// TestPolicies compares the policies of the built-in descriptions with a golden file.
func TestPolicies(t *testing.T) {
	const golden = "testdata/policies.yaml"
	set, err := Load(Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	text, err := set.Policies()
	if err != nil {
		t.Fatal(err)
	}
	if made, err := scenarios.Manifests("policies", text); err != nil || len(made) != 22 {
		t.Errorf("%d manifests, %v", len(made), err)
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
}

// TestPoliciesOfValues checks what a policy compares, and what it says.
func TestPoliciesOfValues(t *testing.T) {
	const text = "kind: FieldPermissions\nresources: [{group: g, versions: [v1], resource: things, fields: [{path: spec.a, verb: a, excludedValues: %s}]}]\n"
	for _, c := range []struct{ values, expression, message string }{
		{"[true]", `(object.?spec.?a != optional.of(true))`, `set spec.a to true`},
		{"[1.0, x, 0.5]", `(object.?spec.?a != optional.of(1) && object.?spec.?a != optional.of("x") && object.?spec.?a != optional.of(0.5))`, `set spec.a to 1 or "x" or 0.5`},
		{`["a\"\n"]`, `(object.?spec.?a != optional.of("a\"\n"))`, `set spec.a to "a\"\n"`},
	} {
		set, err := Parse("f.yaml", fmt.Appendf(nil, text, c.values))
		if err != nil {
			t.Fatal(err)
		}
		policies, err := set.Policies()
		if err != nil {
			t.Fatal(err)
		}
		made, err := scenarios.Manifests("policies", policies)
		if err != nil {
			t.Fatal(err)
		}
		validation := made[0]["spec"].(map[string]any)["validations"].([]any)[0].(map[string]any)
		expression := "object.?spec.?a == (oldObject == null ? optional.none() : oldObject.?spec.?a) || " + c.expression + " || variables.held0"
		message := "granular:a is needed to " + c.message
		if validation["expression"] != expression || validation["message"] != message {
			t.Errorf("%s: got %q, with %q", c.values, validation["expression"], validation["message"])
		}
	}
}

// TestPoliciesPerVersion checks which policies descriptions have, and which have none.
func TestPoliciesPerVersion(t *testing.T) {
	const items = `metadata.labels.*, verb: label, parameter: {source: mapKey, treatment: slash-delimited-prefix}, excludedItems: [a.io/x, a.io/y-z]`
	for _, c := range []struct {
		name, fields, more string
		paths              []string // in CEL
		err                string
	}{
		{"a field", "{path: spec.a, verb: a, excluded: true}", "", []string{".?spec.?a"}, ""},
		{"a field in another version", "{path: spec.a, verb: a, excluded: true}", "{path: spec.b, verb: a, excluded: true}", []string{".?spec.?a"}, ""},
		{"one more in another version", "{path: spec.a, verb: a, excluded: true}", "{path: spec.b, verb: b, excluded: true}", []string{".?spec.?a", ".?spec.?b"}, ""},
		{"keys of a map", "{path: " + items + "}", "{path: " + items + "}", []string{`.?metadata.?labels[?"a.io/x"]`, `.?metadata.?labels[?"a.io/y-z"]`}, ""},
		{"values", `{path: spec.a, verb: a, excludedValues: [true, "x\"y", 1.5]}`, "", []string{".?spec.?a"}, ""},
		{"values of a key", "{path: " + items + ", excludedValues: [b]}", "", []string{`.?metadata.?labels[?"a.io/x"]`, `.?metadata.?labels[?"a.io/y-z"]`}, ""},
		{"values in items", "{path: spec.*, verb: a, parameter: {source: mapKey}}, {path: spec.*.b, verb: b, parameter: {source: mapKey}, excludedValues: [b]}", "", nil, `things: path "spec.*.b": there is a policy only for`},
		{"a name that CEL does not know", "{path: spec.a-b, verb: a, excluded: true}", "", nil, `things: path "spec.a-b": there is a policy only for`},
		{"two of one verb", "{path: spec.a, verb: a, excluded: true}, {path: spec.b, verb: a, excluded: true}", "{path: spec.c, verb: a, excluded: true}", []string{".?spec.?a", ".?spec.?b"}, ""},
		{"nothing", "{path: spec.a, verb: a}", "", nil, "no field is excluded"},
		{"something described in it", "{path: spec, verb: a, excluded: true}, {path: spec.b, verb: b}", "", nil, `things: path "spec": there is a policy only for`},
		{"items", "{path: spec.*, verb: a, excluded: true, parameter: {source: mapKey}}", "", nil, `things: path "spec.*": there is a policy only for`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "kind: FieldPermissions\nresources:\n  - {group: g, versions: [v1], resource: things, fields: [" + c.fields + "]}\n"
			if c.more != "" {
				text += "  - {group: g, versions: [v2], resource: things, fields: [" + c.more + "]}\n"
			}
			set, err := Parse("f.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			made, err := set.Policies()
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) {
					t.Fatalf("got %v, want %s", err, c.err)
				}
				return
			}
			if n := strings.Count(string(made), "kind: ValidatingAdmissionPolicy\n"); err != nil || n != len(c.paths) {
				t.Errorf("%d policies, %v:\n%s", n, err, made)
			}
			for _, path := range c.paths {
				if !strings.Contains(string(made), "object"+path+" == ") {
					t.Errorf("no policy of %s:\n%s", path, made)
				}
			}
		})
	}
}
