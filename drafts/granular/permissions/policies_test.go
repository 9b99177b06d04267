package permissions

import (
	"flag"
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
	if made, err := scenarios.Manifests("policies", text); err != nil || len(made) != 8 {
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
