package pages

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/reports"
)

// These limits say how much summary.md shows. A comment on GitHub has at most 65,536 characters.
const (
	commentLength     = 60_000
	commentFailures   = 30
	commentLines      = 20
	commentRows       = 40
	commentTextLength = 300
)

// renderMarkdown makes summary.md for a comment on a pull request: what failed, how many cases passed, and what was not
// covered. Parts that would make it too long are left out, and named.
func renderMarkdown(r *reports.Report) ([]byte, error) {
	failures := foldFailures(r.Groups)
	parts := []markdownPart{
		{"", summarizeOutcome(r)},
		{"Answers", summarizeAnswers(r.Answers)},
		{"Failures", summarizeFailures(failures)},
		{"Results", summarizeCounts(r)},
		{"Known failing", summarizeKnown(r.KnownFailing)},
		{"Figures", summarizeFigures(r.Figures)},
	}
	for _, s := range r.Sections {
		parts = append(parts, markdownPart{s.Title, summarizeSection(s)})
	}
	parts = append(parts,
		markdownPart{"Not judged", summarizeOmissions(r)},
		markdownPart{"Notes", listMarkdown(r.Outcome.Notes)},
	)
	end := "\n## How to check this\n\n" + codeMarkdown(reports.HTMLFile) + " shows every case. `authzconf verify DIR`, with DIR the folder of this file, " +
		"computes every verdict again from the record, whose digest is " + codeMarkdown(reports.ShortDigest(r.Record.Digest)) + "; it needs no server.\n"
	return []byte(joinParts(parts, commentLength-len(end)) + end), nil
}

// markdownPart is a part of summary.md. A part without text is left out, and so is the heading of a part without a
// title.
type markdownPart struct{ title, text string }

// joinParts returns the parts that fit into a number of bytes, and a line about the others.
func joinParts(parts []markdownPart, length int) string {
	const reserved = 1000 // for the line about what was left out
	var b strings.Builder
	var left []string
	for _, p := range parts {
		if p.text == "" {
			continue
		}
		text := p.text
		if p.title != "" {
			text = "\n## " + escapeMarkdown(p.title) + "\n\n" + p.text
		}
		if b.Len()+len(text) > length-reserved {
			left = append(left, p.title)
			continue
		}
		b.WriteString(text)
	}
	if len(left) > 0 {
		b.WriteString("\nToo long for here, and in " + codeMarkdown(reports.HTMLFile) + ": " + reports.Ellipsis(escapeMarkdown(strings.Join(left, ", ")), reserved/4) + ".\n")
	}
	return b.String()
}

var markdownEscapes = strings.NewReplacer(
	"\\",
	"\\\\",
	"|",
	"\\|",
	"*",
	"\\*",
	"_",
	"\\_",
	"`",
	"\\`",
	"<",
	"&lt;",
	"[",
	"\\[",
	"#",
	"\\#",
	"~",
	"\\~",
	"\r",
	" ",
	"\n",
	" ",
)

// escapeMarkdown returns text on one line in which nothing is markup.
func escapeMarkdown(s string) string { return markdownEscapes.Replace(s) }

// shortenMarkdown returns the beginning of a text, escaped.
func shortenMarkdown(s string) string {
	return escapeMarkdown(reports.Ellipsis(strings.TrimSpace(s), commentTextLength))
}

// codeMarkdown returns the beginning of a text as code.
func codeMarkdown(s string) string {
	s = strings.NewReplacer("\r", " ", "\n", " ", "`", "'", "|", "\\|").Replace(s)
	return "`" + reports.Ellipsis(s, commentTextLength) + "`"
}

// proseMarkdown returns a text in which code is between backticks as Markdown.
func proseMarkdown(s string) string {
	parts := strings.Split(s, "`")
	if len(parts)%2 == 0 {
		return escapeMarkdown(s)
	}
	for i, part := range parts {
		parts[i] = escapeMarkdown(part)
		if i%2 == 1 {
			parts[i] = codeMarkdown(part)
		}
	}
	return strings.Join(parts, "")
}

// listMarkdown returns the first of some lines as a list.
func listMarkdown(lines []string) string {
	var b strings.Builder
	for i, line := range lines {
		if i == commentLines {
			fmt.Fprintf(&b, "- and %d more\n", len(lines)-i)
			break
		}
		b.WriteString("- " + shortenMarkdown(line) + "\n")
	}
	return b.String()
}

func summarizeOutcome(r *reports.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# authzconf %s: %s\n\n", escapeMarkdown(r.Product), escapeMarkdown(string(r.Outcome.Result)))
	fmt.Fprintf(
		&b,
		"%s, %s. Suite %s, seed %d.\n",
		escapeMarkdown(describeSubject(r.Subject)),
		describeSize(r),
		escapeMarkdown(r.SuiteVersion),
		r.Seed,
	)
	if len(r.Outcome.NotCovered) > 0 {
		fmt.Fprintf(&b, "\nNot judged in any group: %s.\n", shortenMarkdown(strings.Join(r.Outcome.NotCovered, "; ")))
	}
	if len(r.Outcome.Reasons) > 0 {
		b.WriteString("\nWhy:\n\n" + listMarkdown(r.Outcome.Reasons))
	}
	return b.String()
}

func summarizeFailures(failures []failure) string {
	var b strings.Builder
	for i, f := range failures {
		if i == commentFailures {
			fmt.Fprintf(&b, "- and %d more, see %s\n", len(failures)-i, codeMarkdown(reports.HTMLFile))
			break
		}
		summarizeFailure(&b, f)
	}
	return b.String()
}

func summarizeFailure(b *strings.Builder, f failure) {
	fmt.Fprintf(b, "- %s **%s** on %s: %s", f.Mark().Symbol, shortenMarkdown(f.Title()), shortenMarkdown(f.Where()), f.Mark().Word)
	if f.Blame != "" {
		fmt.Fprintf(b, ", blame: %s", f.Blame)
	}
	b.WriteString("\n")
	for i, d := range f.Differences {
		if i == shownDifferences {
			fmt.Fprintf(b, "  - and %s\n", reports.Plural(len(f.Differences)-i, "more difference"))
			break
		}
		step := ""
		if f.HasSteps() {
			step = fmt.Sprintf("step %d: ", d.Step)
		}
		fmt.Fprintf(b, "  - %s%s: expected %s, observed %s\n", step, codeMarkdown(d.Field), codeMarkdown(d.Want), codeMarkdown(d.Got))
	}
	lines := listLines(f.FurtherReason())
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "  - %s\n", shortenMarkdown(lines[0]))
	for _, line := range lines[1:] {
		fmt.Fprintf(b, "    %s  \n", codeMarkdown(strings.TrimSpace(line)))
	}
}

func summarizeCounts(r *reports.Report) string {
	if len(r.Groups) == 0 {
		return ""
	}
	columns := []string{"group", "level"}
	for _, m := range reports.Marks() {
		columns = append(columns, m.Word)
	}
	t := reports.Table{Columns: columns, Numeric: []int{2, 3, 4, 5, 6, 7, 8}}
	for _, row := range listCounts(r) {
		t.Rows = append(t.Rows, reports.Row{Cells: row})
	}
	return tableMarkdown(t)
}

func summarizeKnown(entries []reports.KnownFailingState) string {
	if len(entries) == 0 {
		return ""
	}
	t := reports.Table{Columns: []string{"entry", "reason", "issue", "dates", "state"}}
	for _, e := range entries {
		state := string(e.State)
		if e.Detail != "" {
			state += ": " + e.Detail
		}
		t.Rows = append(t.Rows, reports.Row{Cells: []string{e.Describe(), e.Reason, e.Issue, e.Dates(), state}})
	}
	return tableMarkdown(t)
}

func summarizeFigures(figures []reports.Figure) string {
	var lines []string
	for _, f := range figures {
		lines = append(lines, strings.TrimSpace(f.Name+": "+formatNumber(f.Value)+" "+f.Unit))
	}
	return listMarkdown(lines)
}

// summarizeSection returns the texts and tables of a section. Plots are only in report.html.
func summarizeSection(s reports.Section) string {
	var b strings.Builder
	for _, text := range s.Text {
		b.WriteString(proseMarkdown(text) + "\n\n")
	}
	for _, t := range s.Tables {
		if t.Title != "" {
			b.WriteString("**" + escapeMarkdown(t.Title) + "**\n\n")
		}
		b.WriteString(tableMarkdown(t) + "\n")
	}
	if n := len(s.Plots); n > 0 {
		fmt.Fprintf(&b, "%s: see %s.\n", reports.Plural(n, "plot"), codeMarkdown(reports.HTMLFile))
	}
	return b.String()
}

// summarizeOmissions returns what was not judged. It leaves out cases that are for another version.
func summarizeOmissions(r *reports.Report) string {
	expected := map[string]bool{}
	for _, g := range r.Groups {
		for _, o := range g.NotRun {
			expected[o.Why] = expected[o.Why] || o.Cause == reports.CauseTarget
		}
	}
	var lines []string
	for _, o := range foldOmissions(r.Groups) {
		if !expected[o.Why] {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", o.Where(), o.Why, reports.Plural(len(o.Cases), "case")))
		}
	}
	return listMarkdown(lines)
}

// tableMarkdown returns the first rows of a table.
func tableMarkdown(t reports.Table) string {
	if len(t.Columns) == 0 {
		return ""
	}
	var b strings.Builder
	write := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	var names, rules []string
	for i, name := range t.Columns {
		names = append(names, escapeMarkdown(name))
		rule := "---"
		if isNumeric(t, i) {
			rule = "--:"
		}
		rules = append(rules, rule)
	}
	write(names)
	write(rules)
	for i, row := range t.Rows {
		if i == commentRows {
			fmt.Fprintf(&b, "\nand %s, see %s\n", reports.Plural(len(t.Rows)-i, "more row"), codeMarkdown(reports.HTMLFile))
			break
		}
		var cells []string
		for _, text := range row.Cells {
			cells = append(cells, shortenMarkdown(text))
		}
		write(cells)
	}
	return b.String()
}
