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
	if err != nil {
		t.Fatalf("%v, in\n%s", err, text)
	}
	if !reflect.DeepEqual(again.Guards(), set.Guards()) {
		t.Errorf("read %+v, want %+v, from\n%s", again.Guards(), set.Guards(), text)
	}
	if twice, err := again.Format(); err != nil || string(twice) != string(text) {
		t.Errorf("%v: written the second time\n%s\nand the first time\n%s", err, twice, text)
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
