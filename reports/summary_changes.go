package reports

import (
	"fmt"
	"strings"
)

const (
	// changesShown is how many scenarios with more than one behaviour are listed.
	changesShown = 30
	// changeLines and changeLength are how much is said of one change; the page has
	// all of it.
	changeLines  = 4
	changeLength = 300
)

// summaryChanges shows which scenarios behaved in more than one way, and where.
func summaryChanges(b *strings.Builder, tables []behaviourTable) {
	if len(tables) == 0 {
		return
	}
	b.WriteString("## What changed between cells\n\nThe same letter in a row means the same behaviour: answers, messages, access reviews, audit fields and, where they can be seen, counters.\n\n")
	for _, t := range tables {
		name := "Node and RBAC"
		if t.Chain != "" {
			name = "Authorizer chain " + t.Chain
		}
		fmt.Fprintf(b, "%s: %s with more than one behaviour, %d with one, %d written for some of the versions only.\n\n", markdown(name), plural(len(t.Changed), "scenario"), len(t.Same), len(t.Limited))
		t.markdown(b)
	}
}

func (t *behaviourTable) markdown(b *strings.Builder) {
	if len(t.Changed) == 0 {
		return
	}
	b.WriteString("| scenario |")
	for _, c := range t.Cells {
		fmt.Fprintf(b, " %s |", markdown(c.Name))
	}
	b.WriteString("\n|---|" + strings.Repeat(":-:|", len(t.Cells)) + "\n")
	shown := t.Changed[:min(changesShown, len(t.Changed))]
	for _, row := range shown {
		fmt.Fprintf(b, "| %s |", markdown(row.Scenario))
		for _, l := range row.Letters {
			fmt.Fprintf(b, " %s |", orWord(l, "·"))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, row := range shown {
		row.markdown(b)
	}
	if more := len(t.Changed) - len(shown); more > 0 {
		fmt.Fprintf(b, "- and %d more, see report.html\n", more)
	}
	b.WriteString("\n")
}

func (r behaviourRow) markdown(b *strings.Builder) {
	switch {
	case r.Chance:
		fmt.Fprintf(b, "- **%s**: left to chance by the server\n", markdown(r.Scenario))
	case len(r.Steps) == 0:
		fmt.Fprintf(b, "- **%s**: depends on the gate, not on the version\n", markdown(r.Scenario))
	}
	for _, s := range r.Steps {
		if r.Chance {
			break
		}
		fmt.Fprintf(b, "- **%s**, %s → %s:\n", markdown(r.Scenario), markdown(s.From), markdown(s.To))
		for _, l := range s.Lines[:min(changeLines, len(s.Lines))] {
			fmt.Fprintf(b, "  - %s\n", code(ellipsis(l, changeLength)))
		}
		if more := len(s.Lines) - changeLines; more > 0 {
			fmt.Fprintf(b, "  - and %s\n", plural(more, "more line"))
		}
	}
}
