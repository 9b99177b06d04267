package pages

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
)

// SummaryOptions say what WriteSummary shows in addition to the report.
type SummaryOptions struct {
	// Failures is how many failures are shown. 0 means 20.
	Failures int
	// Folder is the folder to which the report was written. It is empty if it was not written.
	Folder string
}

// defaultFailures is how many failures are shown unless the caller says otherwise.
const defaultFailures = 20

// These limits say how much of a failure is shown if there is no space for everything.
const (
	shownDifferences = 5
	// shownLines is enough for a reason and the last lines that a program printed before it died.
	shownLines = 24
)

// WriteSummary writes what the command line prints at the end of a run: what failed, the counts by group and level, the
// answers or figures, the outcome with its reasons and notes, and where the report is.
func WriteSummary(w io.Writer, r *reports.Report, o SummaryOptions) error {
	var b bytes.Buffer
	writeFailures(&b, foldFailures(r.Groups), o)
	if err := writeCounts(&b, r); err != nil {
		return err
	}
	if err := writeFindings(&b, r); err != nil {
		return err
	}
	writeLine(&b, "outcome: %s", Line(r))
	for _, reason := range r.Outcome.Reasons {
		writeLine(&b, "  because %s", reason)
	}
	for _, note := range r.Outcome.Notes {
		writeLine(&b, "  note: %s", note)
	}
	writeLine(&b, "seed %d, %s", r.Seed, r.Finished.Sub(r.Started).Round(100*time.Millisecond))
	if o.Folder != "" {
		writeLine(&b, "report: %s", filepath.Join(o.Folder, reports.HTMLFile))
		writeLine(&b, "check it: authzconf verify %s", o.Folder)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeFindings writes what the run was made to find out: its answers or, if there are none, its figures.
func writeFindings(b *bytes.Buffer, r *reports.Report) error {
	if r.Answers != nil {
		return writeAnswers(b, r.Answers)
	}
	for _, f := range r.Figures {
		writeLine(b, "%s: %s %s", f.Name, formatNumber(f.Value), f.Unit)
	}
	return nil
}

// writeLine writes a line in which no text can control the terminal.
func writeLine(b *bytes.Buffer, format string, args ...any) {
	line := record.Redact(fmt.Sprintf(format, args...))
	b.WriteString(strings.TrimRight(replaceControls(line), " ") + "\n")
}

// replaceControls returns a text on one line, with characters that cannot be printed replaced.
func replaceControls(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n', c == '\t':
			return ' '
		case !unicode.IsPrint(c):
			return unicode.ReplacementChar
		}
		return c
	}, text)
}

func writeFailures(b *bytes.Buffer, failures []failure, o SummaryOptions) {
	most := o.Failures
	if most == 0 {
		most = defaultFailures
	}
	for i, f := range failures {
		if i == most {
			advice := "the report has them all; --report-dir keeps it"
			if o.Folder != "" {
				advice = "see " + filepath.Join(o.Folder, reports.HTMLFile)
			}
			writeLine(b, "and %s: %s", reports.Plural(len(failures)-i, "more failure"), advice)
			return
		}
		writeFailure(b, f)
	}
}

func writeFailure(b *bytes.Buffer, f failure) {
	blame := ""
	if f.Blame != "" {
		blame = fmt.Sprintf(" (blame: %s)", f.Blame)
	}
	writeLine(b, "%s: %s on %s%s", f.Mark().Word, f.Title(), f.Where(), blame)
	for i, d := range f.Differences {
		if i == shownDifferences {
			writeLine(b, "  and %s", reports.Plural(len(f.Differences)-i, "more difference"))
			break
		}
		step := ""
		if f.HasSteps() {
			step = fmt.Sprintf("step %d: ", d.Step)
		}
		writeLine(b, "  %s%s: expected %s, observed %s", step, d.Field, d.Want, d.Got)
	}
	for _, line := range listLines(f.FurtherReason()) {
		writeLine(b, "  %s", line)
	}
}

// listLines returns the first lines of a text, without those that are empty.
func listLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if line == "" {
			continue
		}
		if len(lines) == shownLines {
			return append(lines, "…")
		}
		lines = append(lines, line)
	}
	return lines
}

func writeCounts(b *bytes.Buffer, r *reports.Report) error {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	write := func(cells []string) { _, _ = fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") } // Flush returns the error.
	columns := []string{"group", "level"}
	for _, m := range reports.Marks() {
		columns = append(columns, m.Word)
	}
	write(columns)
	for _, row := range listCounts(r) {
		row[0] = replaceControls(row[0])
		write(row)
	}
	return t.Flush()
}
