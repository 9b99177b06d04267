package granular

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestBuiltIn(t *testing.T) {
	all, err := Load(Scenarios)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[Outcome]int{}
	for _, s := range all {
		for _, a := range s.Attempts {
			outcomes[a.Outcome]++
		}
	}
	t.Logf("%d scenarios, %v", len(all), outcomes)
	if len(all) < 50 || outcomes[Denied] < 50 {
		t.Errorf("%d scenarios, %v", len(all), outcomes)
	}
}

const good = `kind: GranularScenario
description: d
section: s
object: {apiVersion: v1, kind: ConfigMap}
request: {verb: update, change: {data: {a: b}}}
attempts:
  - {name: no, grants: [granular], outcome: denied, missing: update, checks: [no update]}
  - {name: yes, grants: [update], outcome: allowed, checks: [yes update]}
`

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"another kind", "GranularScenario", "Scenario", `f.yaml:1:7: kind must be GranularScenario, not "Scenario"`},
		{"unknown field", "section: s", "section: s\nlevel: core", `f.yaml:4:1: unknown field "level"`},
		{"no section", "section: s\n", "", "f.yaml: expected a description and a section"},
		{"unknown verb", "verb: update", "verb: delete", `f.yaml:7:6: attempt no: verb is "delete", expected one of create`},
		{"unknown subresource", "verb: update", "verb: update, subresource: scale", `f.yaml:7:6: attempt no: subresource is "scale", expected status or none`},
		{"no object", "object: {apiVersion: v1, kind: ConfigMap}\n", "", "f.yaml:6:6: attempt no: update needs a stored object"},
		{"no change", ", change: {data: {a: b}}", "", "f.yaml:7:6: attempt no: expected a change"},
		{"no twin", "name: yes, grants: [update]", "name: yes, request: {verb: update, change: {a: b}}, grants: [update]", "f.yaml:7:6: attempt no: expected a twin that is allowed"},
		{"nothing allowed", "outcome: allowed", "outcome: rejected", "f.yaml:7:6: attempt no: expected a twin that is allowed"},
		{"denied without what is missing", ", missing: update", "", "f.yaml:7:6: attempt no: expected the missing verb"},
		{"wrong check", "[no update]", "[maybe update]", `f.yaml:7:6: attempt no: check "maybe update": expected yes or no, and a verb`},
		{"no checks", "[no update]", "[]", "f.yaml:7:6: attempt no: expected the checks"},
		{"wrong outcome", "outcome: allowed", "outcome: passed", `f.yaml:8:6: attempt yes: outcome is "passed"`},
		{"same names", "name: yes", `name: "no"`, "f.yaml:8:6: expected a name of its own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.new, 1)
			s, err := Parse("f.yaml", []byte(text))
			if c.want == "" {
				if err != nil || s.ID != "f" || len(s.Attempts) != 2 {
					t.Fatalf("got %+v, %v", s, err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestLoadReportsAll(t *testing.T) {
	_, err := Load(fstest.MapFS{"a/x.yaml": {Data: []byte("kind: x\n")}, "a/y.yaml": {Data: []byte("- 1\n")}})
	if err == nil || !strings.Contains(err.Error(), "a/x.yaml:1:") || !strings.Contains(err.Error(), "a/y.yaml:1:") {
		t.Errorf("got %v", err)
	}
	if _, err := Load(fstest.MapFS{"readme": {}}); err == nil {
		t.Error("a folder without scenarios was taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("kind: GranularScenario\nattempts: [{}]\n"))
	f.Add([]byte("attempts:\n- null\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("f.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Errorf("no file in %q", err)
			}
			return
		}
		for _, a := range s.Attempts {
			if s.RequestOf(a) == nil {
				t.Error("an attempt without a request was taken")
			}
		}
	})
}
