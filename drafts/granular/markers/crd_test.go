package markers

import (
	"strings"
	"testing"
)

// goodCRD is a file with one definition. The cases below change it in one place.
const goodCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: things.example.com
  names: {plural: things}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          properties:
            spec: &spec
              properties:
                replicas:
                  x-kubernetes-permission-verb: scale
                entries:
                  x-kubernetes-permission-parameter-source: entry-name
                  additionalProperties:
                    x-kubernetes-permission-verb: entry
                    x-kubernetes-permission-parameterized-by: entry-name
                tags:
                  x-kubernetes-list-type: set
                  items:
                    x-kubernetes-permission-verb: tag
                    x-kubernetes-permission-parameterized-by: tag
                    x-kubernetes-permission-parameter-source: tag
            status: {properties: {phase: {type: string}}}
    - name: v2
      schema: {openAPIV3Schema: {properties: {spec: {properties: {size: {x-kubernetes-permission-verb: scale}}}}}}
`

func TestReadCRDs(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"not YAML", "kind:", "\tkind:", "f.yaml: line 2: found a tab character that violates indentation"},
		{"another kind", "kind: CustomResourceDefinition", "kind: Namespace", "f.yaml: expected a CustomResourceDefinition, with versions"},
		{"an old version of the kind", "k8s.io/v1", "k8s.io/v1beta1", `f.yaml:1: apiVersion is "apiextensions.k8s.io/v1beta1", expected apiextensions.k8s.io/v1`},
		{"no group", "  group: things.example.com\n", "", "f.yaml:1: expected spec.group and spec.names.plural"},
		{"unknown marker", "permission-verb: scale\n                entries", "permission-verbs: scale\n                entries", "f.yaml:14: unknown marker x-kubernetes-permission-verbs, expected one of x-kubernetes-permission-excluded, "},
		{"verb in capitals", "verb: scale\n", "verb: Scale\n", `f.yaml:14: x-kubernetes-permission-verb is "Scale", expected a name in lowerCamelCase`},
		{"verb that is no string", "verb: scale\n", "verb: 1\n", `f.yaml:14: x-kubernetes-permission-verb is "1", expected a string`},
		{"verb with the field around it", "verb: scale\n", "verb: specScale\n", `f.yaml:14: path "spec.replicas": verb "specScale" begins with "spec", which the field is in`},
		{"verb of two meanings", "verb: entry\n", "verb: scale\n", `f.yaml:18: path "spec.entries.*": verb "scale" has a parameter that is taken verbatim, and no parameter at path "spec.replicas"`},
		{"excluded, or not", "verb: scale\n", "verb: scale\n                  x-kubernetes-permission-excluded: false\n", `f.yaml:15: x-kubernetes-permission-excluded is "false", expected true, or no such line`},
		{"excluded values", "verb: scale\n", "verb: scale\n                  x-kubernetes-permission-excluded-values: [1, a, true]\n", ""},
		{"excluded values without a list", "verb: scale\n", "verb: scale\n                  x-kubernetes-permission-excluded-values: 1\n", "f.yaml:15: x-kubernetes-permission-excluded-values is no list, expected a list as in JSON"},
		{"excluded alone", "permission-verb: scale\n", "permission-excluded: true\n", "f.yaml:14: x-kubernetes-permission-excluded has no effect alone, expected x-kubernetes-permission-verb beside it"},
		{"no source in the path", "parameter-source: entry-name", "parameter-source: other", `f.yaml:19: path "spec.entries.*": nothing in the path emits the parameter "entry-name", expected x-kubernetes-permission-parameter-source with it beside additionalProperties`},
		{"source that identifies nothing", "permission-verb: scale\n                entries", "permission-parameter-source: a\n                entries", "f.yaml:14: x-kubernetes-permission-parameter-source has no effect here, expected it beside additionalProperties"},
		{"items of an atomic list", "set", "atomic", `f.yaml:23: path "spec.tags.*": a change in spec.tags is a change of the whole, because that is atomic (expected x-kubernetes-list-type: map`},
		{"items of an atomic map", "additionalProperties:", "x-kubernetes-map-type: atomic\n                  additionalProperties:", `f.yaml:19: path "spec.entries.*": a change in spec.entries is a change of the whole`},
		{"a list that is a map", "set", "map", `f.yaml:24: path "spec.tags.*": nothing in the path emits the parameter "tag"`},
		{"marker where no field is", "status: {", "status: {allOf: [{x-kubernetes-permission-verb: status}], ", "f.yaml:26: x-kubernetes-permission-verb has no effect here, expected it in the schema of properties, items or additionalProperties"},
		{"schema that contains itself", "status: {properties: {phase: {type: string}}}", "status: &status {properties: {phase: *status}}", "f.yaml:26: the alias stands for what it is in, expected a schema that has an end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(goodCRD, c.old, c.new, 1)
			if text == goodCRD && c.old != "" {
				t.Fatalf("the file has no %q", c.old)
			}
			_, err := ReadCRDs("f.yaml", []byte(text))
			requireError(t, err, c.want)
		})
	}
}

// TestCRDMerges checks that a schema that merges another one has the markers of that.
func TestCRDMerges(t *testing.T) {
	text := strings.Replace(goodCRD, "status: {", "status: {<<: *spec, ", 1)
	set, err := ReadCRDs("f.yaml", []byte(strings.Replace(text, "properties: {phase: {type: string}}", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if set.Tree("things.example.com", "v1", "things").Child("status").Child("replicas") == nil {
		t.Error("the fields that are merged have lost their markers")
	}
}

// TestCRDVersions checks that versions with different fields are described apart, and that a definition without
// permissions is not described.
func TestCRDVersions(t *testing.T) {
	set, err := ReadCRDs("f.yaml", []byte(goodCRD))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"v1": "spec.replicas spec.entries.* spec.tags.*", "v2": "spec.size"} {
		var paths []string
		for _, f := range set.Fields("things.example.com", version, "things") {
			paths = append(paths, f.Path)
		}
		if got := strings.Join(paths, " "); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
	bare := strings.ReplaceAll(goodCRD, schemaPrefix, "x-other-")
	_, err = ReadCRDs("f.yaml", []byte(bare))
	if err == nil ||
		err.Error() != "f.yaml: no field has a permission, expected x-kubernetes-permission-verb on one" {
		t.Error(err)
	}
}
