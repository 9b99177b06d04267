package history

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// end is when the windows of the tests end.
var end = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// newReport returns a report that was made a number of days before the end.
func newReport(daysAgo int, results ...reports.Result) *reports.Report {
	r := &reports.Report{
		Product:      "conformance",
		SuiteVersion: "v1",
		Seed:         int64(daysAgo),
		Finished:     end.AddDate(0, 0, -daysAgo),
		Record:       record.Head{Digest: "abc"},
		Groups:       []reports.Group{{Name: "1.37-gate-on", Witness: &reports.Witness{GitVersion: "v1.37.1"}, Cases: results}},
	}
	r.Conclude()
	return r
}

// result returns the verdict on a case.
func result(name string, v verdicts.Verdict) reports.Result {
	r := reports.Result{Case: name, Verdict: v, Judged: 1}
	if v != verdicts.Passed {
		r.Reason = "step 0: code: want 200, got 500"
	}
	return r
}

func TestAppendAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := CheckAppendable(path); err != nil {
		t.Fatal(err)
	}
	first := newReport(1, result("a/passes", verdicts.Passed), result("a/fails", verdicts.Failed), result("a/lacks", verdicts.NotSupported))
	second := newReport(0, result("a/passes", verdicts.Passed))
	for _, r := range []*reports.Report{first, second} {
		if err := Append(path, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckAppendable(path); err != nil {
		t.Errorf("a file with two lines: %v", err)
	}
	entries, err := ReadFile(path)
	if err != nil || !reflect.DeepEqual(entries, []Entry{NewEntry(first), NewEntry(second)}) {
		t.Errorf("got %+v, %v", entries, err)
	}
	group := entries[0].Groups[0]
	if !reflect.DeepEqual(group.Passed, []string{"a/passes"}) || len(group.NotPassed) != 1 || group.Server != "v1.37.1" {
		t.Errorf("expected one case that passed and one that failed, got %+v", group)
	}
}

func TestFilesThatAreNoHistory(t *testing.T) {
	const head = `{"apiVersion":"authzconf.dev/v1alpha1","kind":"HistoryEntry","finished":"2026-01-02T03:04:05Z","product":"conformance",` +
		`"suiteVersion":"","seed":0,"record":"","outcome":"passed","groups":`
	for name, test := range map[string]struct{ text, want string }{
		"an entry":               {head + "[]}\n", ""},
		"an empty line":          {"\n" + head + "null}\n\n", ""},
		"a report":               {"apiVersion: authzconf.dev/v1alpha3\n", "f:1: it is not an entry of a history"},
		"a cut line":             {head + "[]}\n" + head[:40] + "\n", "f:2: it is not an entry of a history"},
		"no end":                 {head + "[]}", "f:1: the last line has no end"},
		"an unknown field":       {head + `[],"x":1}` + "\n", `unknown field "x"`},
		"two on a line":          {head + "[]} {}\n", "f:1: there is something behind the entry"},
		"another kind":           {strings.Replace(head, "HistoryEntry", "Report", 1) + "[]}\n", `f:1: it is "Report" of`},
		"no time":                {strings.Replace(head, "2026-01-02T03:04:05Z", "0001-01-01T00:00:00Z", 1) + "[]}\n", "it has no time"},
		"no product":             {strings.Replace(head, "conformance", "", 1) + "[]}\n", "it names no product"},
		"passed twice":           {head + `[{"name":"g","passed":["a","a"]}]}` + "\n", "a is there twice in g"},
		"passed and not":         {head + `[{"name":"g","passed":["a"],"notPassed":[{"case":"a","verdict":"failed"}]}]}` + "\n", "a is there twice in g"},
		"not passed, and passed": {head + `[{"name":"g","notPassed":[{"case":"a","verdict":"passed"}]}]}` + "\n", `a in g is "passed"; expected failed or invalid`},
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := CheckAppendable(path)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), path, "f"), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestFlakes(t *testing.T) {
	pass, fail, broken := verdicts.Passed, verdicts.Failed, verdicts.Invalid
	// runs returns a run a day, the last one at the end, in which case a has these verdicts.
	runs := func(list ...verdicts.Verdict) (entries []Entry) {
		for i, v := range list {
			entries = append(entries, NewEntry(newReport(len(list)-1-i, result("a", v), result("b", pass))))
		}
		return entries
	}
	known := newReport(0, result("a", fail))
	known.ApplyKnownFailing([]reports.KnownFailing{{Scenario: "a", Reason: "code: want"}})
	// The reason of a list is compared with differences, and this failure has one only in its text.
	if known.Groups[0].Cases[0].KnownFailing == "" {
		t.Fatal("the failure is not marked as known")
	}
	other := runs(pass, fail, fail)
	other[0].SuiteVersion = "v0"
	upgraded := runs(pass, fail)
	upgraded[0].Groups[0].Server = "v1.37.0"
	for name, test := range map[string]struct {
		entries               []Entry
		since                 time.Duration
		flaky, failing, known int
		free, covered         bool
	}{
		"always passed":            {runs(pass, pass, pass, pass), 3 * day, 0, 0, 0, true, true},
		"failed once":              {runs(pass, fail, pass), 2 * day, 1, 0, 0, false, true},
		"invalid once":             {runs(pass, broken, pass), 2 * day, 1, 0, 0, false, true},
		"failed always":            {runs(fail, fail, fail), 2 * day, 0, 1, 0, false, true},
		"failed before the window": {runs(fail, pass, pass, pass), 2 * day, 0, 0, 0, true, true},
		"known":                    {append(runs(pass)[:0], NewEntry(known)), day, 0, 0, 1, true, true},
		"another suite":            {other, 2 * day, 0, 1, 0, false, true},
		"another server":           {upgraded, day, 0, 1, 0, false, true},
		"too short a history":      {runs(pass, pass), 14 * day, 0, 0, 0, false, false},
		"no runs":                  {nil, 14 * day, 0, 0, 0, false, false},
	} {
		f := Find(test.entries, Window{Until: end, Since: test.since, MaxGap: 2 * day})
		if len(f.Flaky) != test.flaky || len(f.Failing) != test.failing || len(f.Known) != test.known || f.Free() != test.free ||
			f.Covered != test.covered {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	f := Find(runs(pass, fail, pass, fail, pass), Window{Until: end, Since: 4 * day, MaxGap: 2 * day})
	got := f.Flaky[0]
	if got.Runs != 5 || got.NotPassed != 2 || got.Seed != 1 || !got.Last.Equal(end.AddDate(0, 0, -1)) ||
		!got.First.Equal(end.AddDate(0, 0, -3)) {
		t.Errorf("got %+v", got)
	}
	if f.Runs != 5 || f.Days != 5 || f.Cases != 2 || f.Verdicts != 10 || f.LongestGap != day.Seconds() {
		t.Errorf("got %+v", f)
	}
}

func TestParsePeriod(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"14d": 14 * day, "1d": day, "36h": 36 * time.Hour, "90s": 90 * time.Second,
		"": 0, "d": 0, "0d": 0, "-1d": 0, "1.5d": 0, "99999999999999999999d": 0, "40000d": 0, "14": 0, "two weeks": 0, "-3h": 0, "0s": 0,
	} {
		got, err := ParsePeriod(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

// FuzzRead checks that a history that is read can be written and read again, and that anything else is an error that
// names a line.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authzconf.dev/v1alpha1","kind":"HistoryEntry","finished":"2026-01-02T03:04:05Z","product":"p","groups":[{"name":"g","passed":["a"]}]}`))
	f.Add([]byte("{}\n\n[]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := Read("f", bytes.NewReader(data))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("the error names no line: %v", err)
			}
			return
		}
		found := Find(entries, Window{Until: end, Since: 365 * day, MaxGap: day})
		if found.Runs > len(entries) || len(found.Flaky)+len(found.Failing)+len(found.Known) > found.Cases {
			t.Errorf("%d entries became %+v", len(entries), found)
		}
	})
}

// FuzzParsePeriod checks that a period that is read is written in a form that means the same.
func FuzzParsePeriod(f *testing.F) {
	for _, text := range []string{"14d", "36h", "1h2m3s", "0d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		period, err := ParsePeriod(text)
		if err != nil {
			return
		}
		if again, err := ParsePeriod(FormatPeriod(period)); err != nil || again != period {
			t.Errorf("%q is %v, written %q, read as %v, %v", text, period, FormatPeriod(period), again, err)
		}
	})
}
