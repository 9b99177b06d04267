package permissions

import (
	"reflect"
	"testing"
)

func TestDescribe(t *testing.T) {
	field := func(path, verb string) *Field { return &Field{Path: path, Verb: verb} }
	things := func(version string, fields ...*Field) Description {
		return Description{Group: "g", Version: version, Resource: "things", Fields: fields}
	}
	for _, c := range []struct {
		name     string
		all      []Description
		versions [][]string
		err      string
	}{
		{"one version", []Description{things("v1", field("spec", "a"))}, [][]string{{"v1"}}, ""},
		{"two versions alike", []Description{things("v1", field("spec", "a")), things("v2", field("spec", "a"))}, [][]string{{"v1", "v2"}}, ""},
		{"two versions that differ", []Description{things("v1", field("spec", "a")), things("v2", field("spec", "b"))}, [][]string{{"v1"}, {"v2"}}, ""},
		{"a verb in capitals", []Description{things("v1", field("spec", "a")), things("v2", field("spec", "b"), field("spec.c", "C"))}, nil,
			`at $.resources[1].fields[1]: path "spec.c": verb is "C", expected lowerCamelCase`},
		{"a resource in capitals", []Description{{Group: "g", Version: "v1", Resource: "Things", Fields: []*Field{field("spec", "a")}}}, nil,
			`at $.resources[0]: resource is "Things", expected the plural name of a resource, or *`},
		{"a version twice", []Description{things("v1", field("spec", "a")), things("v1", field("spec", "b"))}, nil,
			`at $.resources: things in version v1: path "spec": described twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := Describe("about", c.all, func(path string) string { return "at " + path })
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var versions [][]string
			for _, r := range set.Resources {
				versions = append(versions, r.Versions)
			}
			if !reflect.DeepEqual(versions, c.versions) || set.Kind != Kind || set.Description != "about" {
				t.Errorf("got %v of %q %q, want %v", versions, set.Kind, set.Description, c.versions)
			}
		})
	}
}
