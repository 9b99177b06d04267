package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/ci/mutants/campaign"
)

// table is one of Markdown. Columns whose head ends with a colon are numbers.
type table struct{ strings.Builder }

func newTable(heads ...string) *table {
	t := &table{}
	names, lines := make([]any, len(heads)), make([]any, len(heads))
	for i, head := range heads {
		name, number := strings.CutSuffix(head, ":")
		names[i], lines[i] = name, "---"
		if number {
			lines[i] = "--:"
		}
	}
	t.row(names...)
	t.row(lines...)
	return t
}

// row adds a row; text is made to fit into cells.
func (t *table) row(cells ...any) {
	for _, c := range cells {
		if text, ok := c.(string); ok {
			c = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
		}
		_, _ = fmt.Fprintf(t, "| %v ", c)
	}
	t.WriteString("|\n")
}

// code shows source in a cell.
func code(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

func percent(part, whole int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(whole, 1)))
}

// markdown is the whole table of mutants. What its words mean is in docs/mutants.md.
func (r *results) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Broken API servers, and what catches each\n\nMutants of Kubernetes %s, by `make mutants`.\n\n**%s.**\n", r.Kubernetes, r.summary())
	for _, by := range []struct {
		title string
		of    func(campaign.Result) string
	}{
		{"part", func(one campaign.Result) string { return one.Part }},
		{"function", func(one campaign.Result) string { return one.File + ", " + code(one.Function) }},
		{"kind of change", func(one campaign.Result) string { return one.Operator }},
	} {
		out.WriteString("\n## By " + by.title + "\n\n" + r.Results.by(by.of))
	}
	for _, some := range []struct {
		title    string
		statuses []campaign.Status
	}{
		{"Not caught", []campaign.Status{campaign.Survived, campaign.NotCovered}},
		{"Equivalent", []campaign.Status{campaign.Equivalent}},
		{"Caught", statuses[:3]},
	} {
		out.WriteString("\n## " + some.title + "\n\n" + r.Results.only(some.statuses...))
	}
	return out.String()
}

// by counts the results by what group says of each, in the order in which the groups come.
func (l list) by(group func(campaign.Result) string) string {
	heads := []string{"", "mutants:"}
	for _, s := range statuses {
		heads = append(heads, string(s)+":")
	}
	t := newTable(append(heads, "failed:", "caught:")...)
	seen := map[string]bool{}
	for _, one := range l {
		name := group(one)
		if seen[name] {
			continue
		}
		seen[name] = true
		some := l.where(func(other campaign.Result) bool { return group(other) == name })
		cells := []any{name, len(some)}
		for _, s := range statuses {
			cells = append(cells, some.count(s))
		}
		failed, caught := some.scores()
		t.row(append(cells, failed, caught)...)
	}
	return t.String()
}

// only shows the mutants with one of the statuses.
func (l list) only(which ...campaign.Status) string {
	some := l.where(func(one campaign.Result) bool { return slices.Contains(which, one.Status) })
	if len(some) == 0 {
		return "None.\n"
	}
	t := newTable("mutant", "line:", "source", "change", "status", "by, or why not")
	for _, one := range some {
		note := one.Reason
		if one.Status.Caught() {
			// The first difference without its values: names are others in every run.
			note = fmt.Sprintf("%s (%s)", one.Scenario, one.Cell)
			if field, _, ok := strings.Cut(one.Difference, ": want "); ok && one.Status == campaign.Killed {
				note += ", " + field
			}
		}
		t.row(one.Key, one.Line, code(one.Snippet), one.Change, string(one.Status), note)
	}
	return t.String()
}
