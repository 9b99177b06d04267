package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/ci/mutants/campaign"
	"github.com/authzconf/authzconf/ci/mutants/program"
)

// operators say in words what each kind of mutant is.
var operators = map[string]string{
	"argument-zeroed":    "an argument is the zero value: a field left out of a cache key, for example",
	"assignment-removed": "an assignment is left out",
	"body-emptied":       "a function literal does nothing",
	"bound-zeroed":       "a slice begins at 0",
	"break-to-continue":  "break is continue",
	"call-bypassed":      "a call gives back its first argument",
	"call-removed":       "a call is left out",
	"case-removed":       "a case of a switch is not found",
	"comparison-shifted": ">= is >, and so on",
	"condition-dropped":  "a condition is always false",
	"condition-forced":   "a condition is always true",
	"condition-negated":  "a condition with && or || is negated",
	"constant-changed":   "a number is one more, one less or 1; a text is longer; true is false",
	"continue-to-break":  "continue is break",
	"definition-zeroed":  "a variable begins with the zero value",
	"element-dropped":    "an element of a slice is left out",
	"elements-swapped":   "two elements of a slice are exchanged",
	"field-zeroed":       "a field of a composite literal is left out",
	"loop-first-skipped": "a loop begins with the second element",
	"loop-once":          "a loop ends after its first turn",
	"loop-skipped":       "a loop is left out",
	"operand-dropped":    "an operand of && or || is left out",
	"operand-emptied":    "an operand of a concatenation is empty",
	"return-error":       "an error is returned in place of none",
	"return-negated":     "a returned boolean is negated",
	"return-no-error":    "no error is returned in place of one",
	"return-zero":        "a zero value is returned",
	"return-zeros":       "zero values are returned in place of a call's",
}

// markdown is the published page.
func (b *book) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, `# Broken API servers, and which scenario notices each

`+"`make mutants`"+` writes this page. It derives small wrong changes, mutants, from the syntax tree of
`+"`%s`"+` of Kubernetes %s,
compiles them into one kube-apiserver, checks that with none of them chosen it passes the whole
suite, and runs the suite against each of them, over the wire. A mutant is done with at its first
kill, and only scenarios that come by the change are run. The score is the share of the mutants that
are not equivalent and were killed, noticed or refused.

**%s.**

- killed: a scenario failed, three times in a row; and where the server is not the mutant from its
  start, passed on the same server without it.
- noticed: a scenario could not be judged, three times. The API server's own counts and the recorder's
  disagree, a handler panicked, or an audit event is missing. A run of the suite ends as invalid then.
- refused: the API server did not start, or the witness found it to be another one.
- survived: every scenario that comes by the change passed. Those are gaps of the suite.
- not come by: no scenario comes by the change.
- equivalent: argued, one by one, to be no change that a client can see
  ([ci/mutants/equivalent.yaml](../ci/mutants/equivalent.yaml)), or within statements that no client
  reaches ([ci/mutants/unreachable.yaml](../ci/mutants/unreachable.yaml)).

Left alone are the functions %s, which only unit tests call; texts in lines of the server's log; and
the fields %s of metrics, which only describe them.

`, program.Package, b.Kubernetes, b.summary(), quoted(program.OnlyTests()), quoted(program.Descriptions()))
	out.WriteString("## By function\n\n")
	b.table(&out, "file | function", func(r campaign.Result) string { return r.File + " | `" + r.Function + "`" }, sourceOrder)
	out.WriteString("\n## By kind of change\n\n")
	b.table(&out, "operator | ", func(r campaign.Result) string { return r.Operator + " | " + cell(operators[r.Operator]) }, slices.Sort)
	b.list(&out, "Not caught", campaign.Survived, campaign.Unreached)
	b.list(&out, "Equivalent", campaign.Equivalent)
	b.list(&out, "Caught", campaign.Killed, campaign.Noticed, campaign.Refused)
	return out.String()
}

// sourceOrder leaves rows in the order of the results, which is that of the
// source.
func sourceOrder([]string) {}

// table counts the results by what row says of each; order sorts the rows.
func (b *book) table(out *strings.Builder, head string, row func(campaign.Result) string, order func([]string)) {
	rows := map[string]*book{}
	var names []string
	for _, r := range b.Results {
		name := row(r)
		if rows[name] == nil {
			rows[name] = &book{}
			names = append(names, name)
		}
		rows[name].add(r)
	}
	order(names)
	fmt.Fprintf(out, "| %s | mutants | killed | noticed | refused | not caught | equivalent |\n|---|---|---:|---:|---:|---:|---:|---:|\n", head)
	for _, name := range names {
		in := rows[name]
		fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %d | %d |\n", name, len(in.Results), in.count(campaign.Killed), in.count(campaign.Noticed),
			in.count(campaign.Refused), in.count(campaign.Survived, campaign.Unreached), in.count(campaign.Equivalent))
	}
}

// list is the table of the mutants with one of the statuses.
func (b *book) list(out *strings.Builder, title string, statuses ...campaign.Status) {
	fmt.Fprintf(out, "\n## %s\n\n", title)
	if b.count(statuses...) == 0 {
		out.WriteString("None.\n")
		return
	}
	last := "by"
	if !statuses[0].Caught() {
		last = "why"
	}
	fmt.Fprintf(out, "| mutant | line | source | change | status | %s |\n|---|---:|---|---|---|---|\n", last)
	for _, r := range b.Results {
		if !slices.Contains(statuses, r.Status) {
			continue
		}
		note := r.Reason
		if r.Status.Caught() {
			note = caughtBy(r)
		}
		fmt.Fprintf(out, "| %s | %d | `%s` | %s | %s | %s |\n", r.Key, r.Line, cell(strings.ReplaceAll(r.Snippet, "`", "'")), cell(r.Change), r.Status, cell(note))
	}
}

// caughtBy names scenario and cell, and for a kill the first difference, without
// its values: names are others in every run.
func caughtBy(r campaign.Result) string {
	by := fmt.Sprintf("%s (%s)", r.Scenario, r.Cell)
	if field, _, ok := strings.Cut(r.Difference, ": want "); ok && r.Status == campaign.Killed {
		by += ", " + field
	}
	return by
}
