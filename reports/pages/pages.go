// Package pages makes of a report what people and CI systems read: report.html, junit.xml, summary.md, and what the command
// line prints at the end of a run. It depends on the report alone, so that every product has the same pages, and so that
// anybody can make them again.
//
// Tables and plots of a product need no code here: a product puts them into reports.Report as sections, and they appear in
// report.html and summary.md. A part of report.html that is made of the report as a whole, such as the list of failures, is
// one Go file of this package. To add one,
//
//  1. write a file with a section, its template and the function that makes its views (figures.go is a short example; a
//     longer template is a file of its own that is embedded),
//  2. add the section to the list in section.go, at the place where it has to appear.
package pages

import (
	"fmt"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
)

// Render returns the pages of a report by their file names. Whatever looks like a credential is removed.
func Render(r *reports.Report) (map[string][]byte, error) {
	clean, err := record.RedactedCopy(r, "the report")
	if err != nil {
		return nil, err
	}
	pages := map[string][]byte{}
	for name, render := range map[string]func(*reports.Report) ([]byte, error){
		reports.HTMLFile:    renderHTML,
		reports.JUnitFile:   renderJUnit,
		reports.SummaryFile: renderMarkdown,
	} {
		page, err := render(clean)
		if err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		// The report itself has no credentials. This removes what combined parts of it may look like.
		pages[name] = []byte(record.Redact(string(page)))
	}
	return pages, nil
}

// Line returns the outcome in one line, with what it does not cover, such as "passed; 13 cases for lack of nodes: not
// judged".
func Line(r *reports.Report) string { return r.Outcome.Line() }
