package granular

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// noImplementation begins most notices. notices say, by kind of enforcement, what the results do not show.
const noImplementation = "No API server implements KEP-3617. This judges "

var notices = map[string]string{
	Reference: noImplementation + "a reference enforcer before a real API server; it says nothing about any API server's conformance.",
	Policies:  noImplementation + "what ValidatingAdmissionPolicies of a real API server make of its excluded fields; what grants more than the ordinary permission no policy can do.",
	Webhook:   noImplementation + "somebody's enforcer of excluded fields, an admission webhook of a real API server.",
	APIServer: "No release of Kubernetes implements KEP-3617, which was closed unmerged. This judges the kube-apiserver that was named by our reading of the KEP.",
}

// subjects are the subjects that are judged, by kind of enforcement.
var subjects = map[string]string{
	Reference: "the reference enforcer of KEP-3617",
	Policies:  "ValidatingAdmissionPolicies for KEP-3617",
	Webhook:   "an enforcer of KEP-3617",
	APIServer: "a kube-apiserver that implements KEP-3617",
}

// Conclude implements product.Plan.
func (p *plan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	r := &reports.Report{
		Subject: reports.Subject{Name: subjects[p.by.Kind], Provider: p.on.Cell.Provider},
		Groups:  product.Group(p.cases, results),
		Sections: []reports.Section{
			{ID: "notice", Title: "What this is not", Text: []string{notices[p.by.Kind]}},
			{ID: "sections", Title: "Sections of KEP-3617", Tables: []reports.Table{p.countSections(results)}},
		},
	}
	r.AddNote(notices[p.by.Kind])
	observedGroup, err := record.Read[group](evidence, groupKey)
	if err != nil {
		r.AddUnknown("nothing was recorded of the API server: " + err.Error())
		return r, nil //nolint:nilerr // it is a reason of the outcome, which makes the report inconclusive
	}
	g := &r.Groups[0]
	g.Cell, g.Target, g.Witness = &observedGroup.Server.Cell, &observedGroup.Server.Facts, &observedGroup.Server.Witness
	if p.by.URL != "" {
		g.Facts = append(g.Facts, reports.Fact{Name: "enforcer", Value: p.by.URL})
	}
	for _, stray := range observedGroup.Strays {
		r.AddUnknown(
			fmt.Sprintf(
				"the authorizer was asked for %s about %s, who makes no attempt",
				stray.Spec.ResourceAttributes.Verb,
				stray.Spec.User,
			),
		)
	}
	return r, nil
}

// section counts the attempts of one section of the KEP, or of all.
type section struct {
	name                                                string
	scenarios, attempts, failed, invalid, notApplicable int
}

// countSections returns a table of the sections in alphabetical order. The last row is for all sections. Cases that the
// user left out are not counted.
func (p *plan) countSections(results []reports.Result) reports.Table {
	bySection, all := map[string]*section{}, &section{name: "all"}
	seen := map[string]bool{}
	next := 0
	for _, c := range p.cases {
		if c.NotRun != nil && c.NotRun.Cause == reports.CauseUser {
			continue
		}
		var result *reports.Result
		if c.NotRun == nil {
			result = &results[next]
			next++
		}
		s := p.byID[c.ID].scenario
		if bySection[s.Section] == nil {
			bySection[s.Section] = &section{name: s.Section}
		}
		bySection[s.Section].add(result, !seen[s.ID])
		all.add(result, !seen[s.ID])
		seen[s.ID] = true
	}
	table := reports.Table{
		Columns: []string{"section of KEP-3617", "scenarios", "attempts", "failed", "invalid", "not applicable"},
		Numeric: []int{1, 2, 3, 4, 5},
	}
	for _, s := range slices.SortedFunc(maps.Values(bySection), func(a, b *section) int { return strings.Compare(a.name, b.name) }) {
		table.Rows = append(table.Rows, s.row())
	}
	table.Rows = append(table.Rows, all.row())
	return table
}

// add counts an attempt. r is nil if the attempt is not applicable. first is set for the first attempt of a scenario.
func (s *section) add(r *reports.Result, first bool) {
	s.attempts++
	if first {
		s.scenarios++
	}
	switch {
	case r == nil:
		s.notApplicable++
	case r.Verdict == verdicts.Failed:
		s.failed++
	case r.Verdict == verdicts.Invalid:
		s.invalid++
	}
}

func (s *section) row() reports.Row {
	row := reports.Row{Cells: []string{s.name}}
	for _, n := range []int{s.scenarios, s.attempts, s.failed, s.invalid, s.notApplicable} {
		row.Cells = append(row.Cells, strconv.Itoa(n))
	}
	if s.failed > 0 {
		row.Verdict = verdicts.Failed
	}
	return row
}
