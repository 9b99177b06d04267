package pages

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

func TestFoldFailures(t *testing.T) {
	died := func(name string) reports.Result {
		return reports.Result{Case: name, Verdict: verdicts.Invalid, Reason: "kube-apiserver died"}
	}
	other := fail("b", "wrong", scenarios.Core)
	other.Differences[0].Got = "something else"
	failures := foldFailures([]reports.Group{
		{Name: "a", Cases: []reports.Result{died("one"), died("two"), fail("a", "same", scenarios.Core), fail("a", "wrong", scenarios.Core)}},
		{Name: "b", Cases: []reports.Result{pass("one", scenarios.Core), fail("b", "same", scenarios.Core), other}},
	})
	var got []string
	for _, f := range failures {
		got = append(got, fmt.Sprintf("%s %s %v %d", f.Verdict, f.Title(), f.Groups, len(f.Evidence)))
	}
	want := []string{"failed same [a b] 2", "failed wrong [a] 1", "failed wrong [b] 1", "invalid one and 1 more [a] 0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSplitDifference(t *testing.T) {
	tests := []struct{ want, got, marked string }{
		{"allow", "deny", "[allow|deny]"},
		{"impersonate:user-info users/bob in default", "impersonate:user-info users/eve in default", "impersonate:user-info users/[bob|eve] in default"},
		{"impersonate:user-info users/bob in default", "impersonate:user-info users/bob in default", "impersonate:user-info users/bob in [default|default]"},
		{"reviews: a, b, c, d, e, f, g, h", "reviews: a, b, b, c, d, e, f, g, h", "reviews: a, b, [c|b, c], d, e, f, g, h"},
		{strings.Repeat("ä", 20), strings.Repeat("ö", 20), "[" + strings.Repeat("ä", 20) + "|" + strings.Repeat("ö", 20) + "]"},
	}
	for _, test := range tests {
		c := splitDifference(test.want, test.got)
		if marked := fmt.Sprintf("%s[%s|%s]%s", c.Before, c.Want, c.Got, c.After); marked != test.marked {
			t.Errorf("got %q, want %q", marked, test.marked)
		}
		if c.Before+c.Want+c.After != test.want || c.Before+c.Got+c.After != test.got {
			t.Errorf("%q and %q are not whole: %+v", test.want, test.got, c)
		}
	}
}

func TestCompareNames(t *testing.T) {
	names := []string{"throw-10", "b", "throw-9", "throw", "a/2", "a/10", "1.9-on", "1.10-on", ""}
	slices.SortFunc(names, compareNames)
	want := []string{"", "1.9-on", "1.10-on", "a/2", "a/10", "b", "throw", "throw-9", "throw-10"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestFormatNumber(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 120_000: "120000", 0.01234: "0.0123", 12.345: "12.35", 345.67: "345.7", 12345.6: "12346", -2: "-2"} {
		if got := formatNumber(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
}

// TestJUnitCounts checks that the numbers in the attributes are those of the elements.
func TestJUnitCounts(t *testing.T) {
	data := renderPages(t, mixedReport())[reports.JUnitFile]
	var all testSuites
	if err := xml.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Suites) != 3 || all.Suites[0].Name != "run" || all.Suites[0].Failures != 1 {
		t.Fatalf("the first suite is not that of the run: %+v", all.Suites)
	}
	counts := map[string]int{"testcase": all.Tests, "failure": all.Failures, "error": all.Errors, "skipped": all.Skipped}
	for element, want := range counts {
		if got := bytes.Count(data, []byte("<"+element+" ")); got != want {
			t.Errorf("%d <%s>, and the attribute says %d", got, element, want)
		}
	}
	for _, want := range []string{`name="gitVersion" value="v1.37.1"`, `name="kube-apiserver 1.37.1" value="official release, digest pinned; SHA-256 de9b`, `time="0.035"`, `classname="1_37-gate-on.kep-5284.user-info"`} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("%s is missing", want)
		}
	}
}

// TestSummaryLeavesOutWhatIsTooLong has a section that is longer than a comment can be.
func TestSummaryLeavesOutWhatIsTooLong(t *testing.T) {
	r := mixedReport()
	r.Sections = []reports.Section{{Title: "Everything", Text: []string{strings.Repeat("very long ", 10_000)}}}
	text := string(renderPages(t, r)[reports.SummaryFile])
	if len(text) > commentLength || !strings.Contains(text, "Too long for here, and in `report.html`: Everything.") {
		t.Errorf("%d bytes: %s", len(text), text[max(0, len(text)-600):])
	}
	for _, part := range []string{"## Failures", "## Results", "## Not judged", "## How to check this"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing", part)
		}
	}
}

func TestWriteSummaryPointsToTheReport(t *testing.T) {
	r := largeReport(2, 60, func(_, i int) bool { return i%2 == 0 })
	text := printSummary(t, r, SummaryOptions{Failures: 3, Folder: "out"})
	if want := "and 27 more failures: see out/report.html\n"; !strings.Contains(text, want) {
		t.Errorf("%q is missing in\n%s", want, text)
	}
}

// TestLayouts checks how many columns the list of all cases has.
func TestLayouts(t *testing.T) {
	never := func(int, int) bool { return false }
	for cells, want := range map[int]string{1: "words", 4: "words", 5: "marks", 12: "marks", 13: "counts"} {
		views, err := viewMatrix(newPage(largeReport(cells, 30, never)))
		if err != nil || len(views) != 1 {
			t.Fatal(err, views)
		}
		if got := views[0].Data.(matrixView).Layout; got != want {
			t.Errorf("%d groups: %s, want %s", cells, got, want)
		}
	}
}
