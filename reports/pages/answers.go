package pages

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
)

const answersTemplate = `{{template "table" .}}`

// answersSection shows what the run was made to find out.
var answersSection = section{name: "answers", template: answersTemplate, views: viewAnswers}

func viewAnswers(p *page) ([]view, error) {
	if p.Answers == nil {
		return nil, nil
	}
	return showView(view{ID: "answers", Title: "Answers", Data: *p.Answers})
}

// summarizeAnswers returns the answers for summary.md.
func summarizeAnswers(answers *reports.Table) string {
	if answers == nil {
		return ""
	}
	return summarizeSection(reports.Section{Tables: []reports.Table{*answers}})
}

// writeAnswers writes the answers for a terminal.
func writeAnswers(b *bytes.Buffer, answers *reports.Table) error {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	write := func(cells []string) { _, _ = fmt.Fprintln(t, strings.Join(seq.Map(cells, replaceControls), "\t")) } // Flush returns the error.
	if answers.Title != "" {
		writeLine(b, "%s:", answers.Title)
	}
	write(seq.Map(answers.Columns, strings.ToUpper))
	for _, row := range answers.Rows {
		write(row.Cells)
	}
	return t.Flush()
}
