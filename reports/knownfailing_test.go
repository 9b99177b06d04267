package reports

import (
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

func TestKnownFailingStates(t *testing.T) {
	failed := result("a/b/one", scenarios.Core, verdicts.Failed)
	failed.Reason = "step 0: code: want 200, got 403"
	failed.Differences = []verdicts.Difference{{Field: "code", Want: "200", Got: "403"}, {Field: "reviews[1].name", Want: "x", Got: "y"}}
	results := []Result{
		failed, result("a/b/two", scenarios.Core, verdicts.Passed), result("a/b/three", scenarios.Core, verdicts.Invalid),
		result("a/c/four", scenarios.Core, verdicts.NotSupported), result("a/b/skipped", scenarios.Core, verdicts.Skipped),
	}
	for _, c := range []struct {
		name    string
		entry   KnownFailing
		want    KnownState
		matched int
	}{
		{"the first difference", KnownFailing{Scenario: "a/b/one", Reason: "step 0: code: want 200, got 403"}, KnownFails, 1},
		{"a later difference", KnownFailing{Scenario: "a/b/one", Reason: "reviews[1].name: want x"}, KnownFails, 1},
		{"no field", KnownFailing{Scenario: "a/b/one", Reason: "want"}, KnownFailsOtherwise, 1},
		{"no field, with a step", KnownFailing{Scenario: "a/b/*ne", Reason: "step 0: "}, KnownFailsOtherwise, 1},
		{"a part of a field", KnownFailing{Scenario: "a/b/*ne", Reason: "cod"}, KnownFailsOtherwise, 1},
		{"another reason", KnownFailing{Scenario: "a/b/one", Reason: "outcome"}, KnownFailsOtherwise, 1},
		{"passes", KnownFailing{Scenario: "a/b/two", Reason: "x"}, KnownPasses, 1},
		{"invalid", KnownFailing{Scenario: "a/b/three", Reason: "x"}, KnownInvalid, 1},
		{"not executed", KnownFailing{Scenario: "a/c/four", Reason: "x"}, KnownUnmatched, 0},
		{"skipped", KnownFailing{Scenario: "a/b/skipped", Reason: "x"}, KnownUnmatched, 0},
		{"no such scenario", KnownFailing{Scenario: "a/b/on", Reason: "x"}, KnownUnmatched, 0},
		{"pattern", KnownFailing{Scenario: "a/*/on?", Reason: "code"}, KnownFails, 1},
		{"a star does not cross a slash", KnownFailing{Scenario: "a/*", Reason: "code"}, KnownUnmatched, 0},
		{"pattern that matches too much", KnownFailing{Scenario: "a/b/*", Reason: "code"}, KnownPasses, 3},
		{"this cell", KnownFailing{Scenario: "a/b/one", Cell: "?", Reason: "code"}, KnownFails, 1},
		{"another cell", KnownFailing{Scenario: "a/b/one", Cell: "1.35-*", Reason: "code"}, KnownUnmatched, 0},
		{"on its last day", KnownFailing{Scenario: "a/b/one", Reason: "code", Until: "2026-01-02"}, KnownFails, 1},
		{"after its last day", KnownFailing{Scenario: "a/b/one", Reason: "code", Until: "2026-01-01"}, KnownExpired, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := oneGroup(append([]Result(nil), results...)...)
			r.Finished = time.Date(2026, 1, 2, 23, 59, 59, 0, time.UTC)
			r.ApplyKnownFailing([]KnownFailing{c.entry})
			k := r.KnownFailing[0]
			if k.State != c.want || k.Matched != c.matched {
				t.Errorf("got %s, matched %d, want %s, %d (%s)", k.State, k.Matched, c.want, c.matched, k.Detail)
			}
			if (k.State == KnownFails) != (k.Detail == "") {
				t.Errorf("state %s with detail %q", k.State, k.Detail)
			}
			marked := r.Groups[0].Cases[0].KnownFailing != ""
			explained := c.matched > 0 && strings.HasPrefix(c.entry.Scenario, "a/") && c.entry.explainsResult(failed) &&
				c.entry.matchesCase("c", failed)
			if marked != (explained && k.State != KnownExpired) {
				t.Errorf("the failure is marked: %t, want %t", marked, explained)
			}
		})
	}
}

func TestLoadKnownFailing(t *testing.T) {
	const head = "apiVersion: authzconf.dev/v1alpha1\nkind: KnownFailingList\n"
	for _, c := range []struct{ name, text, want string }{
		{"good", head + "entries:\n- scenario: a/b\n  cell: 1.3?-*\n  reason: got 403\n  issue: https://example.com/1\n", ""},
		{"empty list", head + "entries: []\n", ""},
		{"empty file", "", "f.yaml:1:1: the file is empty"},
		{"two documents", head + "---\n" + head, "f.yaml:4:1: the file holds 2 YAML documents"},
		{"no kind", "apiVersion: authzconf.dev/v1alpha1\n", "f.yaml: kind must be KnownFailingList"},
		{"other kind", "apiVersion: authzconf.dev/v1alpha1\nkind: Report\n", "f.yaml:2:7: kind must be"},
		{"other version", "apiVersion: authzconf.dev/v9\nkind: KnownFailingList\n", "f.yaml:1:13: apiVersion must be"},
		{"unknown field", head + "entries:\n- scenario: a\n  reason: r\n  expires: tomorrow\n", `f.yaml:6:3: unknown field "expires"`},
		{"dates", head + "entries:\n- {scenario: a, reason: r, since: 2026-01-02, until: 2026-02-01}\n", ""},
		{"no date", head + "entries:\n- scenario: a\n  reason: r\n  until: tomorrow\n", `f.yaml:6:10: "tomorrow" is not a day; write it like 2006-01-02`},
		{"ends before it begins", head + "entries:\n- {scenario: a, reason: r, since: 2026-02-01, until: 2026-01-02}\n", "f.yaml:4:54: the entry ends on 2026-01-02, before it begins on 2026-02-01"},
		{"wrong type", head + "entries: all\n", "f.yaml:3:10: "},
		{"no YAML", "a: [", "f.yaml:1:"},
		{"no reason", head + "entries:\n- scenario: a\n- scenario: b\n  reason: ' '\n", "f.yaml:4:3: entry 1 states no reason"},
		{"no scenario", head + "entries:\n- reason: r\n", "f.yaml:4:3: entry 1 names no scenario"},
		{"bad pattern", head + "entries:\n- scenario: 'a/['\n  reason: r\n", "f.yaml:4:13: bad pattern"},
		{"bad cell pattern", head + "entries:\n- scenario: a\n  reason: r\n  cell: '['\n", "f.yaml:6:9: bad pattern"},
		{"twice", head + "entries:\n- {scenario: a, reason: r}\n- {scenario: a, reason: s}\n", "f.yaml:5:"},
		{"duplicate key", head + "entries: []\nentries: []\n", "f.yaml:4:1: "},
		{"too large", head + strings.Repeat("# x\n", 300000), "f.yaml:1:1: cannot be read: it is larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries, err := LoadKnownFailing("f.yaml", []byte(c.text))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v", err)
			case c.want == "" &&
				c.name == "good" &&
				(len(entries) != 1 || entries[0].Issue != "https://example.com/1"):
				t.Errorf("got %+v", entries)
			case c.want != "" &&
				(err == nil || !strings.HasPrefix(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func FuzzLoadKnownFailing(f *testing.F) {
	f.Add([]byte("apiVersion: authzconf.dev/v1alpha1\nkind: KnownFailingList\nentries:\n- {scenario: 'a/[', reason: r, cell: '*'}\n"))
	f.Add([]byte("entries: &a\n- *a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := LoadKnownFailing("f.yaml", data)
		if err != nil && !strings.HasPrefix(err.Error(), "f.yaml") {
			t.Errorf("no file in %q", err)
		}
		for _, e := range entries {
			if err == nil &&
				(strings.TrimSpace(e.Scenario) == "" || strings.TrimSpace(e.Reason) == "") {
				t.Errorf("accepted %+v", e)
			}
		}
	})
}

func FuzzDecodeReport(f *testing.F) {
	made := oneGroup(result("x", scenarios.Core, verdicts.Failed))
	made.APIVersion, made.Kind = ReportVersion, ReportKind
	made.Conclude()
	data, err := made.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("apiVersion: authzconf.dev/v1alpha3\nkind: Report\ngroups: [{}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeJudged("r.yaml", data)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			return // YAML can express such a time, but JSON cannot
		}
		if _, err := DecodeJudged("again.yaml", again); err != nil {
			t.Errorf("what was read cannot be read again: %v", err)
		}
		r.Conclude()
	})
}
