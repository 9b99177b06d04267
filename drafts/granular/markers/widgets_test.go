package markers

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

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

// TestWidgets compares what is read from markers with the descriptions of the Widget that were written by hand: the
// whole, and what is listed of it.
func TestWidgets(t *testing.T) {
	const resource = "widgets.granular.authzconf.dev"
	want := slices.DeleteFunc(parseBuiltin(t, "widgets.yaml").Guards(), func(g permissions.Guard) bool {
		return g.Resource != resource
	})
	fields := parseBuiltin(t, "widgets.yaml").Fields("granular.authzconf.dev", "v1", "widgets")
	if len(want) < 10 {
		t.Fatalf("only %d fields of the Widget are described by hand", len(want))
	}
	for name, got := range readWidgets(t) {
		if !reflect.DeepEqual(got.Guards(), want) {
			t.Errorf("%s: got %+v, want %+v", name, got.Guards(), want)
		}
		if !reflect.DeepEqual(got.Fields("granular.authzconf.dev", "v1", "widgets"), fields) {
			t.Errorf("%s: the fields are not those that were written by hand", name)
		}
	}
}

// TestWidgetSchema compares the marked definition of the Widget with the one that the scenarios install: without its
// markers it is part of that.
func TestWidgetSchema(t *testing.T) {
	marked, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadFile("../widget.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if missing := findMissing(versionsOf(t, marked), versionsOf(t, installed)); missing != "" {
		t.Errorf("the installed definition has nothing like %s", missing)
	}
}

// findMissing returns the path of something that a value has and another one does not have, or has otherwise, or "".
func findMissing(value, in any) string {
	switch v := value.(type) {
	case []any:
		other, _ := in.([]any)
		for i, item := range v {
			if i >= len(other) {
				return fmt.Sprintf("[%d]", i)
			}
			if missing := findMissing(item, other[i]); missing != "" {
				return fmt.Sprintf("[%d]%s", i, missing)
			}
		}
		return ""
	case map[string]any:
		other, _ := in.(map[string]any)
		for key, item := range v {
			if missing := findMissing(item, other[key]); missing != "" {
				return "." + key + missing
			}
		}
		return ""
	}
	if !reflect.DeepEqual(value, in) {
		return fmt.Sprintf(" (%v)", value)
	}
	return ""
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
