package scenarios_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/scenarios"
)

// TestEveryFieldIsDocumented checks that docs/scenarios.md names each field that a scenario's file can have.
func TestEveryFieldIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{}
	collectFields(reflect.TypeFor[scenarios.Scenario](), map[reflect.Type]bool{}, fields)
	if !fields["impersonatedUser"] {
		t.Fatalf("the fields of audit expectations are not among %v", fields)
	}
	for field := range fields {
		// In the text a name is in backticks, alone or with a value, or a heading; in an example it begins a value.
		if !regexp.MustCompile("`" + field + "[`:]|\\b" + field + ":|# " + field + "\n").Match(page) {
			t.Errorf("docs/scenarios.md does not name the field %s", field)
		}
	}
}

// collectFields adds the names that fields of a type of this module, and of what it consists of, have in files.
func collectFields(of reflect.Type, visited map[reflect.Type]bool, names map[string]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collectFields(of.Elem(), visited, names)
		return
	case reflect.Struct:
	default:
		return
	}
	isOurs := strings.HasPrefix(of.PkgPath(), "github.com/authzconf/authzconf")
	if !isOurs || visited[of] {
		return
	}
	visited[of] = true
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		if name != "" {
			names[name] = true
		}
		collectFields(field.Type, visited, names)
	}
}
