package markers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// good is a package with one resource. The cases below change it in one place.
const good = `// Package v1 has things.
// +groupName=things.example.com
package v1

type TypeMeta struct{}

type ObjectMeta struct {
	Labels map[Key]Value ` + "`json:\"labels\"`" + `
}

// +permission-parameter-source:"label-key"
type Key string

// +permission-verb:"label"
// +permission-parameterized-by:"label-key"
type Value string

type Thing struct {
	TypeMeta
	ObjectMeta ` + "`json:\"metadata\"`" + `
	Spec Spec ` + "`json:\"spec\"`" + `
}

type Spec struct {
	// +permission-verb:"scale"
	Replicas int ` + "`json:\"replicas\"`" + `
	// +listType=set
	Tags []Tag ` + "`json:\"tags\"`" + `
	More
	Child *Spec ` + "`json:\"-\"`" + `
}

type Tag string

type More struct {
	Other int ` + "`json:\"other\"`" + `
}
`

// loop is a type whose permission has a parameter that would be there without end.
const loop = `// +permission-verb:"loop"
// +permission-parameterized-by:"other"
type Loop struct {
	// +permission-parameter-source:"other"
	Other string ` + "`json:\"other\"`" + `
	// +listType=map
	// +listMapKey=other
	Loops []Loop ` + "`json:\"loops\"`" + `
}
`

// writePackage writes a package in a module of its own, and goes there.
func writePackage(t *testing.T, source string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/things\n\ngo 1.26\n", "v1/types.go": source} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestReadTypes(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"unknown marker", `+permission-verb:"scale"`, `+permission-verbs:"scale"`, "v1/types.go:25: unknown marker +permission-verbs, expected one of +permission-excluded, +permission-excluded-values, +permission-parameter-source, +permission-parameter-treatment, +permission-parameterized-by, +permission-verb"},
		{"equals sign", `+permission-verb:"scale"`, `+permission-verb="scale"`, `v1/types.go:25: +permission-verb="scale": expected : before the value, not =`},
		{"verb without a value", `+permission-verb:"scale"`, `+permission-verb`, "v1/types.go:25: +permission-verb: expected : and a name in lowerCamelCase"},
		{"verb in capitals", `+permission-verb:"scale"`, `+permission-verb:"Scale"`, `v1/types.go:25: +permission-verb is "Scale", expected a name in lowerCamelCase`},
		{"value without an end", `+permission-verb:"scale"`, `+permission-verb:"scale`, "v1/types.go:25: +permission-verb:\"scale: expected a value in double quotes and nothing after it"},
		{"verb with the field around it", `+permission-verb:"scale"`, `+permission-verb:"specScale"`, `v1/types.go:25: path "spec.replicas": verb "specScale" begins with "spec", which the field is in`},
		{"verb with the resource", `+permission-verb:"scale"`, `+permission-verb:"thingScale"`, `v1/types.go:25: path "spec.replicas": verb "thingScale" begins with "thing"`},
		{"verb of two meanings", `+permission-verb:"scale"`, `+permission-verb:"label"`, `v1/types.go:25: path "spec.replicas": verb "label" has no parameter, and a parameter that is taken verbatim at path "metadata.labels.*"`},
		{"verb twice", `// +permission-verb:"scale"`, "// +permission-verb:\"scale\"\n\t// +permission-verb:\"scale\"", "v1/types.go:26: +permission-verb is given twice, expected it once (the first is at v1/types.go:25)"},
		{"excluded alone", `+permission-verb:"scale"`, "+permission-excluded", "v1/types.go:25: +permission-excluded has no effect alone, expected +permission-verb beside it"},
		{"excluded with a value", `+permission-verb:"scale"`, "+permission-excluded:true", "v1/types.go:25: +permission-excluded:true: expected +permission-excluded without a value"},
		{"excluded values", `// +permission-verb:"scale"`, "// +permission-verb:\"scale\"\n\t// +permission-excluded-values:[1, 2.5]", ""},
		{"excluded values alone", `+permission-verb:"scale"`, "+permission-excluded-values:[1]", "v1/types.go:25: +permission-excluded-values has no effect alone, expected +permission-verb beside it"},
		{"excluded values without a list", `// +permission-verb:"scale"`, "// +permission-verb:\"scale\"\n\t// +permission-excluded-values:1", `v1/types.go:26: +permission-excluded-values is "1", expected a list as in JSON, such as [true] or ["a", "b"]`},
		{"excluded values that are not JSON", `// +permission-verb:"scale"`, "// +permission-verb:\"scale\"\n\t// +permission-excluded-values:[a]", `v1/types.go:26: +permission-excluded-values is [a], expected a list as in JSON, such as [true] or ["a", "b"]`},
		{"excluded value twice", `// +permission-verb:"scale"`, "// +permission-verb:\"scale\"\n\t// +permission-excluded-values:[1, 1.0]", `v1/types.go:25: path "spec.replicas": excludedValues has 1 twice`},
		{"unknown treatment", `// +permission-parameterized-by:"label-key"`, "// +permission-parameterized-by:\"label-key\"\n// +permission-parameter-treatment:lower-case", `v1/types.go:16: +permission-parameter-treatment is "lower-case", expected slash-delimited-prefix, or no treatment at all`},
		{"treatment alone", `+permission-parameterized-by:"label-key"`, "+permission-parameter-treatment:slash-delimited-prefix", "v1/types.go:15: +permission-parameter-treatment has no effect alone, expected +permission-parameterized-by beside it"},
		{"no source in the path", "map[Key]Value", "map[string]Value", `v1/types.go:15: path "metadata.labels.*": nothing in the path emits the parameter "label-key", expected +permission-parameter-source with it on the type of the keys of a map`},
		{"another source in the path", `source:"label-key"`, `source:"labels"`, `v1/types.go:15: path "metadata.labels.*": nothing in the path emits the parameter "label-key"`},
		{"no parameter", "// +permission-parameterized-by:\"label-key\"\n", "", `v1/types.go:14: path "metadata.labels.*": expected a parameter, for each item has a permission of its own`},
		{"source that identifies nothing", `+permission-verb:"scale"`, `+permission-parameter-source:"a"`, "v1/types.go:25: +permission-parameter-source has no effect here, expected it on the type of the keys of a map"},
		{"type and field differ", `Tags []Tag`, "// +permission-verb:\"a\"\n\tTags Tags", `v1/types.go:28: +permission-verb is "a", and "b" for the type at v1/types.go:40 (expected one of them)`},
		{"items of an atomic list", "// +listType=set\n\tTags []Tag", "Tags []Value", `v1/types.go:14: path "spec.tags.*": a change in spec.tags is a change of the whole, because that is atomic (expected +listType=map`},
		{"field of an atomic struct", "type Spec struct", "// +structType=atomic\ntype Spec struct", `v1/types.go:26: path "spec.replicas": a change in spec is a change of the whole`},
		{"permission of an inlined struct", "type More struct", "// +permission-verb:\"more\"\ntype More struct", "v1/types.go:35: +permission-verb on More, whose fields are inlined at v1/types.go:29: expected it on fields of the struct"},
		{"permission of the whole object", "type Thing struct", "// +permission-verb:\"all\"\ntype Thing struct", "v1/types.go:18: +permission-verb on a whole object, expected it on fields of it"},
		{"field that JSON leaves out", "Child *Spec", "// +permission-verb:\"child\"\n\tChild *Spec", "v1/types.go:30: +permission-verb:\"child\" has no effect, expected it on a field that JSON has"},
		{"type that contains itself", "Child *Spec `json:\"-\"`", "Child *Spec `json:\"child\"`", `v1/types.go:30: type Spec contains itself, and has permissions in it: expected them around it only`},
		{"recursion without permissions", "Other int", "Again []More", ""},
		{"recursion with a parameter", "Tags []Tag", "// +listType=map\n\t// +listMapKey=other\n\tTags []Loop", "v1/types.go:52: type Loop contains itself, and has permissions in it"},
		{"marker behind a field", "Other int `json:\"other\"`", "Other int `json:\"other\"` // +permission-verb:\"other\"", "v1/types.go:36: +permission-verb:\"other\" has no effect here, expected it in a line before a type or a field"},
		{"unknown marker that nothing reaches", "type TypeMeta", "// +permission-very\nfunc _() {}\n\ntype TypeMeta", "v1/types.go:5: unknown marker +permission-very"},
		{"generic type", "Other int", "Other List[int]", "v1/types.go:36: a generic type, expected one without type parameters"},
		{"unknown type", "Other int", "Other Unknown", "v1/types.go:36: type Unknown is not declared in package example.com/things/v1"},
		{"unknown package", "Other int", "Other lists.List", "v1/types.go:36: package lists is not imported"},
		{"no group", "// +groupName=things.example.com\n", "", "v1/types.go:2: package v1 has no API group, expected +groupName=GROUP in the comment before its package clause"},
		{"no resource", "ObjectMeta `", "Meta ObjectMeta `", "no Go type is a resource, expected a struct that embeds TypeMeta and ObjectMeta"},
		{"syntax error", "type TypeMeta struct{}", "type TypeMeta {", "v1/types.go:5: expected type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := strings.Replace(good, c.old, c.new, 1)
			if source == good && c.old != "" {
				t.Fatalf("the package has no %q", c.old)
			}
			writePackage(t, source+"\n// +permission-verb:\"b\"\n// +permission-parameterized-by:\"none\"\ntype Tags []Tag\n\n"+loop)
			_, err := ReadTypes(".")
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

// TestNoPermissions reads a resource that has no permissions.
func TestNoPermissions(t *testing.T) {
	var source []string
	for _, line := range strings.Split(good, "\n") {
		if !isMarker(strings.TrimPrefix(strings.TrimSpace(line), "//")) {
			source = append(source, line)
		}
	}
	writePackage(t, strings.Join(source, "\n"))
	if _, err := ReadTypes("v1"); err == nil || err.Error() != "no field has a permission, expected +permission-verb on one" {
		t.Error(err)
	}
}

// TestNoPackages reads folders in which there is nothing to read.
func TestNoPackages(t *testing.T) {
	t.Chdir(t.TempDir())
	for dir, want := range map[string]string{
		".":       "pattern ./...: directory prefix . does not contain main module or its selected dependencies, expected a folder of Go packages in a module",
		"nowhere": "there is no such folder",
	} {
		if _, err := ReadTypes(dir); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", dir, err, want)
		}
	}
}

// TestNoGoCommand reads types where there is no go command.
func TestNoGoCommand(t *testing.T) {
	writePackage(t, good)
	t.Setenv("PATH", t.TempDir())
	if _, err := ReadTypes("."); err == nil || !strings.HasPrefix(err.Error(), "there is no go command on the PATH, expected one") {
		t.Error(err)
	}
}
