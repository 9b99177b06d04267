package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/ci/mutants/campaign"
	"github.com/authzconf/authzconf/ci/mutants/program"
)

// table is one of Markdown. Columns whose head ends with a colon are numbers.
type table struct{ strings.Builder }

func newTable(heads ...string) *table {
	t := &table{}
	lines := make([]any, len(heads))
	names := make([]any, len(heads))
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
	fmt.Fprintf(&out, "# Broken API servers, and what catches each\n\nMutants of `%s` of Kubernetes %s, by `make mutants`.\n\n**%s.**\n",
		program.Package, r.Kubernetes, r.summary())
	out.WriteString("\n## By function\n\n" + r.Results.by(func(one campaign.Result) string { return one.File + ", " + code(one.Function) }))
	out.WriteString("\n## By kind of change\n\n" + r.Results.by(func(one campaign.Result) string { return one.Operator }))
	out.WriteString("\n## Not caught\n\n" + r.Results.only(campaign.Survived, campaign.NotCovered))
	out.WriteString("\n## Equivalent\n\n" + r.Results.only(campaign.Equivalent))
	out.WriteString("\n## Caught\n\n" + r.Results.only(campaign.Killed, campaign.Detected, campaign.Refused))
	return out.String()
}

// by counts the results by what group says of each.
func (l list) by(group func(campaign.Result) string) string {
	groups := map[string]list{}
	var names []string
	for _, one := range l {
		name := group(one)
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], one)
	}
	heads := []string{"", "mutants:"}
	for _, s := range statuses {
		heads = append(heads, string(s)+":")
	}
	t := newTable(heads...)
	for _, name := range names {
		cells := []any{name, len(groups[name])}
		for _, s := range statuses {
			cells = append(cells, groups[name].count(s))
		}
		t.row(cells...)
	}
	return t.String()
}

// only shows the mutants with one of the statuses.
func (l list) only(statuses ...campaign.Status) string {
	if l.count(statuses...) == 0 {
		return "None.\n"
	}
	t := newTable("mutant", "line:", "source", "change", "status", "by, or why not")
	for _, one := range l {
		if !slices.Contains(statuses, one.Status) {
			continue
		}
		note := one.Reason
		if one.Status.Caught() {
			note = caughtBy(one)
		}
		t.row(one.Key, one.Line, code(one.Snippet), one.Change, one.Status, note)
	}
	return t.String()
}

// caughtBy names scenario and cell, and for a kill the first difference, without its values: names are others in
// every run.
func caughtBy(one campaign.Result) string {
	by := fmt.Sprintf("%s (%s)", one.Scenario, one.Cell)
	if field, _, ok := strings.Cut(one.Difference, ": want "); ok && one.Status == campaign.Killed {
		by += ", " + field
	}
	return by
}

// total is the sum, of all statements and of those that a client can reach.
func (r *coverageResults) total() string {
	statements, covered := r.report.Total()
	reachable := statements
	for block := range r.argued {
		reachable -= block.Statements
	}
	return fmt.Sprintf("%d of %d statements (%s); of the %d that a client can reach, %s",
		covered, statements, percent(covered, statements), reachable, percent(covered, reachable))
}

// markdown is the published page.
func (r *coverageResults) markdown() string {
	functions := newTable("file", "function", "statements:", "reached:", "share:")
	for _, f := range r.report.Functions {
		functions.row(f.File, code(f.Name), f.Statements, f.Covered, percent(f.Covered, f.Statements))
	}
	unreachable, missing := newTable("where", "statement", "why"), newTable("where", "statement")
	for _, block := range r.report.Missed {
		where := fmt.Sprintf("%s:%d, %s", block.File, block.From, code(block.Function))
		if a, ok := r.argued[block]; ok {
			unreachable.row(where, code(block.Code), a.Reason)
		} else {
			missing.row(where, code(block.Code))
		}
	}
	left := missing.String()
	if len(r.missing) == 0 {
		left = "Nothing.\n"
	}
	return fmt.Sprintf(`# What the suite reaches of the API server

`+"`make server-coverage`"+` writes this page. It builds kube-apiserver %s such that it counts the statements of
`+"`%s`"+` that are reached, and runs the suite's scenarios for this version, gate on
and gate off: %d runs, all passed, over the wire only. %s.

The functions %s, which only unit tests call, do not count.

%s
## Not reached, and why no client can

The arguments are reviewed, in [ci/mutants/unreachable.yaml](../ci/mutants/unreachable.yaml). One that turns out wrong fails the target.

%s
## Not reached yet

%s`, r.release.Version, program.Package, r.scenarios, r.total(), "`"+strings.Join(program.OnlyTests(), "` and `")+"`", functions, unreachable, left)
}
