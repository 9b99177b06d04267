package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/authzconf/authzconf/conformance/explore"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/verdicts"
)

// wrong is a failure that HTML, XML and Markdown all could break at.
const wrong = `"a" & b < c > d`

// TestBriefPages: what failed and what is invalid is in every page of every kind of report, well formed.
func TestBriefPages(t *testing.T) {
	failed := reports.Record{Outcome: verdicts.Failed}
	for _, of := range []struct {
		kind                       *filing.Kind
		report                     reports.Recorded
		failures, errors, of, skip int
	}{
		{&explore.Folder, &explore.Report{Record: failed, Interrupted: true, Cells: []explore.CellReport{{Name: "good"}, {Name: "lost", Problems: []string{"gone"}}, {Name: "bad", Disagreements: []explore.Disagreement{{Case: 7, Reason: wrong}}}}}, 2, 2, 5, 0},
	} {
		t.Run(of.kind.Name, func(t *testing.T) {
			dir := t.TempDir()
			if err := reports.WriteRecorded(dir, of.kind, of.report, &reports.Pieces{}); err != nil {
				t.Fatal(err)
			}
			read := func(name string) string {
				data, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			type counts struct {
				Tests    int `xml:"tests,attr"`
				Failures int `xml:"failures,attr"`
				Errors   int `xml:"errors,attr"`
				Skipped  int `xml:"skipped,attr"`
			}
			var junit struct {
				counts
				Suite struct {
					counts
					Cases []struct {
						Failure *string   `xml:"failure"`
						Error   *string   `xml:"error"`
						Skipped *struct{} `xml:"skipped"`
					} `xml:"testcase"`
				} `xml:"testsuite"`
			}
			if err := xml.Unmarshal([]byte(read("junit.xml")), &junit); err != nil {
				t.Fatal(err)
			}
			seen, told := counts{Tests: len(junit.Suite.Cases)}, false
			for _, c := range junit.Suite.Cases {
				switch {
				case c.Failure != nil:
					seen.Failures++
					told = told || strings.Contains(*c.Failure, wrong)
				case c.Error != nil:
					seen.Errors++
				case c.Skipped != nil:
					seen.Skipped++
				}
			}
			if want := (counts{of.of, of.failures, of.errors, of.skip}); seen != want || junit.Suite.counts != want || !told {
				t.Errorf("junit.xml has %+v, says %+v, want %+v, and tells what is wrong: %t", seen, junit.Suite.counts, want, told)
			}
			if junit.Failures != of.failures || junit.Errors != of.errors {
				t.Errorf("junit.xml: all suites %+v", junit.counts)
			}
			page := read("report.html")
			if _, err := html.Parse(strings.NewReader(page)); err != nil || !strings.Contains(page, html.EscapeString(`a" & b < c > d`)) || strings.Contains(page, "b < c") {
				t.Errorf("report.html: %v\n%s", err, page[strings.Index(page, "<main>"):])
			}
			if s := read("summary.md"); !strings.Contains(s, `"a" & b &lt; c > d`) {
				t.Error(s)
			}
		})
	}
}
