package permissions

import (
	"reflect"
	"strings"
	"testing"
)

// TestFormat writes the built-in descriptions to a file, and reads them again.
func TestFormat(t *testing.T) {
	set, err := Load(Descriptions)
	if err != nil {
		t.Fatal(err)
	}
	set.Kind, set.Description = Kind, "all of them"
	text, err := set.Format()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("f.yaml", text)
	if err != nil || !reflect.DeepEqual(again, set) {
		t.Errorf("%v: read %+v, want %+v, from\n%s", err, again, set, text)
	}
	for _, line := range []string{
		`  - group: ""`,
		`    versions: ['*']`,
		`      - {path: spec.triggerSelfDestructOnSecurityBreach, verb: selfDestruction, excluded: true}`,
		`      - {path: status.conditions.*, verb: condition, parameter: {source: itemKey, key: type}}`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, text)
		}
	}
}
