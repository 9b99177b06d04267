package main

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/ci/mutants/coverage"
	"github.com/authzconf/authzconf/ci/mutants/program"
	"github.com/authzconf/authzconf/clusters/local"
)

// coverageBook is what is published of a coverage run.
type coverageBook struct {
	release   local.Release
	scenarios int
	report    *coverage.Report
	arguments []coverage.Argument
}

// table is the counts of each function, for a terminal.
func (b *coverageBook) table() string {
	var out strings.Builder
	for _, f := range b.report.Functions {
		fmt.Fprintf(&out, "%-30s %-55s %4d of %4d  %5.1f %%\n", f.File, f.Name, f.Covered, f.Statements, percent(f.Covered, f.Statements))
	}
	out.WriteString(b.total() + "\n")
	return out.String()
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// total is the sum, of all statements and of those that a client can reach.
func (b *coverageBook) total() string {
	statements, covered := b.report.Total()
	argued, _, _ := b.report.Argue(b.arguments)
	unreachable := 0
	for block := range argued {
		unreachable += block.Statements
	}
	return fmt.Sprintf("%d of %d statements (%.1f %%); of the %d that a client can reach, %.1f %%",
		covered, statements, percent(covered, statements), statements-unreachable, percent(covered, statements-unreachable))
}

// markdown is the published page.
func (b *coverageBook) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, `# What the suite reaches of the API server

`+"`make server-coverage`"+` writes this page. It builds kube-apiserver %s such that it counts the
statements of `+"`%s`"+`
that it comes by, and runs the suite's scenarios for this version, gate on and gate off: %d runs,
all passed, over the wire only. %s.

The functions %s, which only unit tests call, do not count.

| file | function | statements | reached | |
|---|---|---:|---:|---:|
`, b.release.Version, program.Package, b.scenarios, b.total(), quoted(program.OnlyTests()))
	for _, f := range b.report.Functions {
		fmt.Fprintf(&out, "| %s | `%s` | %d | %d | %.1f %% |\n", f.File, f.Name, f.Statements, f.Covered, percent(f.Covered, f.Statements))
	}
	argued, missing, _ := b.report.Argue(b.arguments)
	out.WriteString("\n## Not reached, and why no client can\n\nThe arguments are reviewed, in [ci/mutants/unreachable.yaml](../ci/mutants/unreachable.yaml). One that turns out wrong fails the target.\n\n| where | statement | why |\n|---|---|---|\n")
	for _, block := range b.report.Missed {
		if a, ok := argued[block]; ok {
			fmt.Fprintf(&out, "| %s:%d, `%s` | `%s` | %s |\n", block.File, block.From, block.Function, cell(block.Code), cell(a.Reason))
		}
	}
	out.WriteString("\n## Not reached yet\n\n")
	if len(missing) == 0 {
		out.WriteString("Nothing.\n")
		return out.String()
	}
	out.WriteString("| where | statement |\n|---|---|\n")
	for _, block := range missing {
		fmt.Fprintf(&out, "| %s:%d, `%s` | `%s` |\n", block.File, block.From, block.Function, cell(block.Code))
	}
	return out.String()
}

// cell makes a text fit into a table's cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

func quoted(names []string) string {
	var out []string
	for _, n := range names {
		out = append(out, "`"+n+"`")
	}
	return strings.Join(out, " and ")
}
