package scenarios_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/scenarios"
)

func TestSetups(t *testing.T) {
	shared := strings.Replace(valid, "level: core", "level: core\nsetup: crew", 1)
	shared = shared[:strings.Index(shared, "  - revoke")]
	tests := map[string]struct{ first, second, want string }{
		"the same":       {shared, strings.Replace(shared, "gate: on", "gate: off", 1), ""},
		"other requests": {shared, strings.Replace(shared, "verb: list", "verb: watch", 1), ""},
		"other grants": {
			shared,
			strings.Replace(shared, "resourceNames: [bob]", "resourceNames: [bob, carol]", 1),
			"b.yaml:9:3: grants are not those of a, which has the same setup (expected the same)",
		},
		"other requestors": {
			shared,
			strings.Replace(shared, "groups: [crew]", "groups: [crew, more]", 1),
			"b.yaml:7:3: requestors are not those of a",
		},
		"alone": {
			shared,
			valid,
			`a.yaml:4:8: no other scenario has the setup "crew" (expected two at least, for different versions or gates)`,
		},
		"a step that changes it": {
			shared,
			strings.Replace(valid, "level: core", "level: core\nsetup: crew", 1),
			`b.yaml:23:5: the step changes what the setup "crew" keeps`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := scenarios.Load(fstest.MapFS{"a.yaml": file(test.first), "b.yaml": file(test.second)}, fstest.MapFS{})
			switch {
			case test.want == "" && err != nil:
				t.Fatal(err)
			case test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}

func TestSetupsOfTheCatalogue(t *testing.T) {
	set := embedded(t)
	names := set.Setups()
	if len(names) < 10 {
		t.Fatalf("setups %v", names)
	}
	only := set.Only(func(s *scenarios.Scenario) bool { return s.Setup == names[0] })
	if only.Len() != 2 || only.All()[0].Setup != names[0] {
		t.Errorf("setup %s: %v", names[0], only.All())
	}
}
