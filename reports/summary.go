package reports

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// renderSummary is summary.md: what fits into the comment of a CI system.
func renderSummary(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) []byte {
	b := &strings.Builder{}
	fmt.Fprintf(b, "# authzconf: %s\n\n", r.Outcome.Result)
	fmt.Fprintf(b, "%s, %s, %s. Suite %s, seed %d.\n\n", markdown(implementationName(r)), plural(len(r.Cells), "cell"),
		plural(len(r.Scenarios), "scenario"), markdown(r.SuiteVersion), r.Seed)
	bullets(b, "Why", r.Outcome.Reasons)
	bullets(b, "Notes", r.Outcome.Notes)
	if r.Path != nil {
		fmt.Fprintf(b, "## The path %s\n\n", markdown(r.Path.Name))
		pathStages(b, r)
		pathRequests(b, r, evidence, set)
		pathClaims(b, r)
	}
	summaryTable(b, r)
	summaryFailures(b, r)
	summaryChanges(b, behaviourTables(r, evidence, set))
	summaryFindings(b, r)
	summaryKnown(b, r)
	summaryNotRun(b, r)
	fmt.Fprintf(b, "## How to check this\n\n")
	fmt.Fprintf(b, "`report.html` shows every request with what was expected and seen. `authzconf verify DIR`, with DIR the folder of this file, recomputes every verdict from `evidence/` and `scenarios/`; it needs no server. The scenarios have the digest `%s`.\n", short(r.ScenariosDigest))
	return []byte(b.String())
}

func implementationName(r *ConformanceReport) string {
	i := r.Implementation
	return strings.TrimSpace(i.Name+" "+i.Version) + " (" + i.Provider + ")"
}

func bullets(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:\n\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", markdown(l))
	}
	b.WriteString("\n")
}

// crowd is from how many cells on a row of a table is a cell, not a level of
// one: a summary has to fit into a comment.
const crowd = 9

func summaryTable(b *strings.Builder, r *ConformanceReport) {
	b.WriteString("| cell | server | level | passed | failed | known failing | invalid | not supported | skipped | not for this cell |\n")
	b.WriteString("|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, c := range r.Cells {
		for _, row := range c.CountRows(len(r.Cells)) {
			n := row.Counts
			fmt.Fprintf(b, "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d |\n", markdown(c.Name), markdown(c.Witness.GitVersion), row.Level,
				n.Passed, n.Failed, n.KnownFailing, n.Invalid, n.NotSupported, n.Skipped, n.NotApplicable)
		}
	}
	b.WriteString("\n")
}

// CountRow is a row of a table of counts.
type CountRow struct {
	// Level is a level, or "all".
	Level string
	Counts
}

// CountRows are the cell's counts as they are shown beside those of so many
// cells: by level, or of all levels together.
func (c *Cell) CountRows(cells int) []CountRow {
	var rows []CountRow
	all := CountRow{Level: "all"}
	for _, level := range Levels() {
		n, ok := c.Summary[level]
		if ok {
			rows = append(rows, CountRow{string(level), n})
			all.Counts = all.add(n)
		}
	}
	if cells >= crowd && len(rows) > 0 {
		return []CountRow{all}
	}
	return rows
}

// failuresShown is how many failures are listed: a summary of hundreds is none.
const failuresShown = 30

// summaryFailures lists what failed or is invalid, each with its first
// difference.
func summaryFailures(b *strings.Builder, r *ConformanceReport) {
	shown := 0
	for _, c := range r.Cells {
		for _, res := range c.Results {
			if res.KnownFailing != "" || res.Verdict != verdicts.Failed && res.Verdict != verdicts.Invalid {
				continue
			}
			shown++
			if shown == 1 {
				b.WriteString("## Failures\n\n")
			}
			if shown > failuresShown {
				continue
			}
			fmt.Fprintf(b, "- **%s** on %s (%s): %s, blame: %s\n", markdown(res.Scenario), markdown(c.Name), res.Level, res.Verdict, res.Blame)
			if len(res.Differences) > 0 {
				d := res.Differences[0]
				fmt.Fprintf(b, "  - step %d, %s: want %s, got %s\n", d.Step, code(d.Field), code(d.Want), code(d.Got))
				if more := len(res.Differences) - 1; more > 0 {
					fmt.Fprintf(b, "  - and %s\n", plural(more, "more difference"))
				}
			}
			if why := furtherReason(res); why != "" {
				fmt.Fprintf(b, "  - %s\n", markdown(firstLine(why)))
			}
		}
	}
	if shown > failuresShown {
		fmt.Fprintf(b, "- and %d more, see report.html\n", shown-failuresShown)
	}
	if shown > 0 {
		b.WriteString("\n")
	}
}

// furtherReason is what a reason says beyond the first difference, with which
// that of a failure begins: why the blame is what it is.
func furtherReason(r verdicts.Result) string {
	if len(r.Differences) == 0 {
		return r.Reason
	}
	d := r.Differences[0]
	rest := strings.TrimPrefix(r.Reason, fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got))
	return strings.TrimPrefix(rest, "; ")
}

// findingLength is how much of a finding's texts is shown; the page has them
// whole.
const findingLength = 240

func summaryFindings(b *strings.Builder, r *ConformanceReport) {
	if len(r.Findings) == 0 {
		return
	}
	fmt.Fprintf(b, "## Where documents and servers differ\n\n<details><summary>%s, judged against the servers: passed means that the server does what servers are known to do, not what the text says</summary>\n\n", plural(len(r.Findings), "finding"))
	for _, f := range groupFindings(r.Findings) {
		fmt.Fprintf(b, "- **%s** (%s)\n  - documented: %s\n", markdown(f.Scenario), markdown(f.Source), markdown(ellipsis(f.Documented, findingLength)))
		for _, s := range f.Seen {
			fmt.Fprintf(b, "  - seen on %s (%s): %s\n", markdown(someOf(s.Cells)), s.Verdict, markdown(ellipsis(strings.Join(s.Lines, "; "), findingLength)))
		}
	}
	b.WriteString("\n</details>\n\n")
}

func summaryKnown(b *strings.Builder, r *ConformanceReport) {
	if len(r.KnownFailing) == 0 {
		return
	}
	b.WriteString("## Known failing\n\n| entry | reason | issue | state |\n|---|---|---|---|\n")
	for _, k := range r.KnownFailing {
		state := string(k.State)
		if k.Detail != "" {
			state += ": " + k.Detail
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", markdown(k.describe()), markdown(k.Reason), markdown(k.Issue), markdown(state))
	}
	b.WriteString("\n")
}

// summaryNotRun counts what was not run, and says why; of many cells only where
// somebody may miss it.
func summaryNotRun(b *strings.Builder, r *ConformanceReport) {
	title := false
	for _, c := range r.Cells {
		for _, g := range notRunGroups(&c) {
			if g.Cause == CauseTarget && len(r.Cells) >= crowd {
				continue
			}
			if !title {
				b.WriteString("## Not run\n\n")
				title = true
			}
			fmt.Fprintf(b, "- %s: %s: %s\n", markdown(c.Name), markdown(g.Why), plural(len(g.Scenarios), "scenario"))
		}
	}
	if title {
		b.WriteString("\n")
	}
}

// notRunGroup is the scenarios of a cell that were not run for one reason.
type notRunGroup struct {
	Why       string
	Cause     NotRunCause
	Scenarios []string
}

// notRunGroups groups the scenarios that were not run, unsupported ones
// included, by their reason, in order of appearance.
func notRunGroups(c *Cell) []notRunGroup {
	var groups []notRunGroup
	at := map[string]int{}
	add := func(why string, cause NotRunCause, id string) {
		i, ok := at[why]
		if !ok {
			i = len(groups)
			at[why] = i
			groups = append(groups, notRunGroup{Why: why, Cause: cause})
		}
		groups[i].Scenarios = append(groups[i].Scenarios, id)
	}
	for _, r := range c.Results {
		if !executed(r.Verdict) {
			add(r.Reason, CauseTarget, r.Scenario)
		}
	}
	for _, n := range c.NotRun {
		add(n.Why, n.Cause, n.Scenario)
	}
	return groups
}

// markdown escapes what would change the meaning of a text within a table or a
// list.
func markdown(s string) string {
	return strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[", "\n", " ").Replace(s)
}

// code is a text in backquotes.
func code(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "`", "'")
	return "`" + s + "`"
}

func short(digest string) string { return digest[:min(12, len(digest))] }
