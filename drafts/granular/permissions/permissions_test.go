package permissions

import (
	"slices"
	"strings"
	"testing"
)

const good = `kind: FieldPermissions
resources:
  - group: apps
    versions: [v1, v2]
    resource: things
    fields:
      - {path: spec, verb: specification}
      - {path: spec.parts.*, verb: part, parameter: {source: itemKey, key: name}}
      - {path: spec.parts.*.image, verb: imageOf, parameter: {source: itemKey, key: name}}
      - {path: spec.secret, verb: secrecy, excluded: true}
      - {path: spec.size, verb: greatness, excludedValues: [100, huge, true, 2.5]}
      - {path: labels.*, verb: label, parameter: {source: mapKey, treatment: slash-delimited-prefix}}
`

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"another kind", "FieldPermissions", "Permissions", `f.yaml:1:7: kind must be FieldPermissions, not "Permissions"`},
		{"unknown field", "verb: part,", "verbs: part,", `f.yaml:8:30: unknown field "verbs"`},
		{"no resources", good[strings.Index(good, "resources"):], "", "f.yaml: resources: expected at least one"},
		{"every group, one resource", "group: apps", `group: "*"`, `f.yaml:3:5: group "*" and resource "things"`},
		{"no versions", "[v1, v2]", "[]", `f.yaml:3:5: resource "things": expected versions and fields, or embeds`},
		{"no name of a resource", "resource: things", "resource: Things", `f.yaml:3:5: resource is "Things"`},
		{"verb like a path", "verb: specification", "verb: apps.spec", `f.yaml:7:10: path "spec": verb is "apps.spec", expected lowerCamelCase`},
		{"verb in capitals", "verb: specification", "verb: Specification", `f.yaml:7:10: path "spec": verb is "Specification"`},
		{"item without parameter", ", parameter: {source: itemKey, key: name}}", "}", `f.yaml:8:10: path "spec.parts.*": expected a parameter`},
		{"unknown source", "source: mapKey", "source: key", `f.yaml:12:10: path "labels.*": source is "key"`},
		{"key without need", "source: mapKey", "source: mapKey, key: a", `f.yaml:12:10: path "labels.*": key is "a"`},
		{"no key", "itemKey, key: name}}", "itemKey}}", `f.yaml:8:10: path "spec.parts.*": key is ""`},
		{"unknown treatment", "slash-delimited-prefix", "lower-case", `f.yaml:12:10: path "labels.*": treatment is "lower-case"`},
		{"parameter from nowhere", "verb: secrecy", "verb: secrecy, parameter: {source: mapKey}", `f.yaml:10:10: path "spec.secret": a parameter comes from an item`},
		{"path twice", "path: spec.secret", "path: spec", `f.yaml:10:10: path "spec": described twice`},
		{"names beside items", "path: labels.*", "path: spec.*", `f.yaml:12:10: path "spec.*": names and * in one place`},
		{"items begin the path", "path: labels.*", `path: "*"`, `f.yaml:12:10: path "*": expected names of fields`},
		{"items not described", "path: spec.parts.*,", "path: spec.pieces.*,", `f.yaml:9:10: path "spec.parts.*.image": expected "spec.parts.*" to be described before it`},
		{"keys without a map", "excluded: true", "excludedItems: [a]", `f.yaml:10:10: path "spec.secret": excludedItems are keys of a map`},
		{"keys of a list", "key: name}}", "key: name}, excludedItems: [a]}", `f.yaml:8:10: path "spec.parts.*": excludedItems are keys of a map`},
		{"values of an excluded field", "excluded: true", "excluded: true, excludedValues: [a]", `f.yaml:10:10: path "spec.secret": excluded and excludedValues, expected either`},
		{"no values", "[100, huge, true, 2.5]", "[]", `f.yaml:11:10: path "spec.size": excludedValues is empty`},
		{"a value that is an object", "2.5]", "{a: b}]", `f.yaml:11:10: path "spec.size": excludedValues: {"a":"b"} is not a scalar (expected strings, booleans and numbers)`},
		{"a value that is a list", "2.5]", "[a]]", `f.yaml:11:10: path "spec.size": excludedValues: ["a"] is not a scalar`},
		{"a value that is null", "2.5]", "null]", `f.yaml:11:10: path "spec.size": excludedValues: null is not a scalar`},
		{"a value that JSON does not have", "2.5]", ".inf]", "f.yaml:11:78: excludedValues is a number (expected a value that JSON can hold"},
		{"a number that is too large", "2.5]", "18446744073709551615]", "f.yaml:11:78: excludedValues is a number (expected a value that JSON can hold"},
		{"one value twice", "2.5]", "huge]", `f.yaml:11:10: path "spec.size": excludedValues has "huge" twice`},
		{"one number in two forms", "2.5]", "100.0]", `f.yaml:11:10: path "spec.size": excludedValues has 100 twice`},
		{"a number and a string", "2.5]", `"100"]`, ""},
		{"values of every item", "key: name}}", "key: name}, excludedValues: [a]}", `f.yaml:8:10: path "spec.parts.*": expected excludedItems beside excludedValues`},
		{"values of every key", "slash-delimited-prefix}", "slash-delimited-prefix}, excludedValues: [a]", `f.yaml:12:10: path "labels.*": expected excludedItems beside excludedValues`},
		{"values of a key", "slash-delimited-prefix}", "slash-delimited-prefix}, excludedItems: [a], excludedValues: [b]", ""},
		{"values of an object", "verb: specification", "verb: specification, excludedValues: [a]", `f.yaml:8:10: path "spec.parts.*": excludedValues of "spec" are scalars, expected nothing described inside it`},
		{"values of a field of an item", "verb: imageOf", "verb: imageOf, excludedValues: [a]", ""},
		{"verb with the field around it", "verb: secrecy", "verb: specSecrecy", `f.yaml:10:10: path "spec.secret": verb "specSecrecy" begins with "spec", which the field is in`},
		{"verb with the resource", "verb: secrecy", "verb: thingSecrecy", `f.yaml:10:10: path "spec.secret": verb "thingSecrecy" begins with "thing"`},
		{"one verb of two meanings", "verb: secrecy", "verb: part", `f.yaml:10:10: path "spec.secret": verb "part" has no parameter, and a parameter that is taken verbatim at path "spec.parts.*"`},
		{"nothing for a field", "- {path: spec, verb: specification}", "-", "f.yaml:7:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(strings.Replace(good, c.old, c.new, 1)))
			requireError(t, err, c.want)
		})
	}
}

// requireError ends a test unless an error begins with a text and is of one line, or there is none if the text is empty.
func requireError(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestTree(t *testing.T) {
	set, err := Parse("f.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if root := set.Tree("apps", "v3", "things"); len(root.Children) > 0 {
		t.Error("another version is described")
	}
	root := set.Tree("apps", "v2", "things")
	if !root.Excluded() || root.Child("labels").Excluded() {
		t.Error("the excluded field is not found")
	}
	if root.Child("spec").Child("parts").Child("x").Child("image").Field.Verb != "imageOf" {
		t.Error("an item is not found")
	}
	if root.Child("nothing").Child("below").Items() != nil {
		t.Error("nothing has items")
	}
}

// TestKnownFields compares the list of the KEP, "List of known fields wanting these features", with the descriptions.
func TestKnownFields(t *testing.T) {
	set, err := Load(Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	for resource, paths := range map[[2]string][]string{
		{"", "pods"}: {
			"metadata", "metadata.labels", "metadata.labels.*", "metadata.annotations", "metadata.annotations.*", "metadata.finalizers", "metadata.finalizers.*",
			"metadata.liens", "metadata.ownerReferences", "status", "status.conditions.*", "spec", "spec.nodeName", "spec.schedulePaused",
		},
		{"apps", "deployments"}:        {"spec.replicas"},
		{"apps", "replicasets"}:        {"spec.replicas"},
		{"apps", "statefulsets"}:       {"spec.replicas"},
		{"", "replicationcontrollers"}: {"spec.replicas"},
	} {
		for _, path := range paths {
			if !slices.ContainsFunc(set.Fields(resource[0], "v1", resource[1]), func(f *Field) bool { return f.Path == path }) {
				t.Errorf("%s: %s is not described", resource[1], path)
			}
		}
	}
}

func TestPermission(t *testing.T) {
	for _, c := range []struct {
		treatment       Treatment
		parameter, verb string
	}{
		{SlashDelimitedPrefix, "mycompany.example.com/FooLabel", "granular:label(mycompany.example.com)"},
		{SlashDelimitedPrefix, "plain", "granular:label(plain)"},
		{SlashDelimitedPrefix, "a/b/c", "granular:label(a)"},
		{SlashDelimitedPrefix, "/b", "granular:label()"},
		{Verbatim, "a/b", "granular:label(a/b)"},
	} {
		f := &Field{Path: "metadata.labels.*", Verb: "label", Parameter: &Parameter{Source: MapKey, Treatment: c.treatment}}
		if p := f.Permission(c.parameter, isNothing); p.Verb != c.verb || p.Depth != 3 {
			t.Errorf("%s: %+v, expected %s", c.parameter, p, c.verb)
		}
	}
}

// isNothing is for fields whose values do not count.
func isNothing(any) bool { return false }

// TestExcludedValues checks which changes of a field and of the keys of a map are excluded by their values.
func TestExcludedValues(t *testing.T) {
	level := &Field{Path: "spec.level", Verb: "level", ExcludedValues: []any{"high", true}}
	label := &Field{
		Path:           "labels.*",
		Verb:           "label",
		Parameter:      &Parameter{Source: MapKey},
		ExcludedItems:  []string{"a", "b"},
		ExcludedValues: []any{"high"},
	}
	for _, c := range []struct {
		field     *Field
		parameter string
		now       any
		excluded  bool
	}{
		{level, "", "high", true},
		{level, "", true, true},
		{level, "", "low", false},
		{level, "", false, false},
		{level, "", nil, false},
		{label, "a", "high", true},
		{label, "b", "high", true},
		{label, "a", "low", false},
		{label, "c", "high", false},
	} {
		isNow := func(value any) bool { return value == c.now }
		if got := c.field.Permission(c.parameter, isNow).Excluded; got != c.excluded {
			t.Errorf("%s of %q is now %v: excluded %t", c.field.Path, c.parameter, c.now, got)
		}
	}
}

// TestGuards checks what the list of permissions says about the ordinary permission.
func TestGuards(t *testing.T) {
	for _, c := range []struct {
		field *Field
		want  string
	}{
		{&Field{}, "yes"},
		{&Field{Excluded: true}, "no"},
		{&Field{ExcludedItems: []string{"a", "b"}}, "but a, b"},
		{&Field{ExcludedValues: []any{true}}, "but true"},
		{&Field{ExcludedValues: []any{"true", 1.0, 0.5}}, `but "true", 1, 0.5`},
		{&Field{ExcludedItems: []string{"a", "b"}, ExcludedValues: []any{"high"}}, `but a, b: "high"`},
	} {
		if got := c.field.describeOrdinary(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestExcludedItems excludes one key of a map that is described for every resource.
func TestExcludedItems(t *testing.T) {
	set, err := Load(Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	labels := set.Tree("", "v1", "namespaces").Child("metadata").Child("labels").Items()
	for key, excluded := range map[string]bool{"pod-security.kubernetes.io/enforce": true, "pod-security.kubernetes.io/warn": false, "team": false} {
		if p := labels.Field.Permission(key, isNothing); p.Excluded != excluded {
			t.Errorf("%s: excluded %t", key, p.Excluded)
		}
	}
	if !set.Tree("", "v1", "namespaces").Excluded() || set.Tree("", "v1", "configmaps").Excluded() {
		t.Error("the labels of another resource are excluded")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(embedded))
	f.Add([]byte(strings.Replace(good, "[100, huge, true, 2.5]", "[{a: b}, null, .nan, 1e400, 2001-01-01]", 1)))
	f.Add([]byte("kind: FieldPermissions\nresources: [null]\n"))
	f.Add([]byte("kind: FieldPermissions\nresources: [{group: a, versions: [v1], resource: b, fields: [null, {path: '*'}]}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse("f.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Errorf("no file in %q", err)
			}
			return
		}
		for _, g := range set.Guards() {
			if g.Ordinary == "" {
				t.Errorf("%s: the ordinary permission of it is unknown", g.Path)
			}
		}
		for _, r := range set.Resources {
			for _, version := range r.Versions {
				if root := set.Tree(r.Group, version, r.Resource); len(root.Children) == 0 && len(r.Fields) > 0 {
					t.Error("a described resource has no tree")
				}
			}
		}
	})
}
