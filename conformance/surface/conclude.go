package surface

import (
	"fmt"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Conclude implements product.Plan.
func (p *plan) Conclude(results []reports.Result, evidence record.View) (*reports.Report, error) {
	r := &reports.Report{
		Subject: reports.Subject{Name: "kube-apiserver", Provider: "local"},
		Groups:  product.Group(p.cases, results),
	}
	table := reports.Table{Columns: []string{"gate", "what was compared", "result"}}
	for i := range r.Groups {
		g := &r.Groups[i]
		p.describe(g, evidence)
		for _, c := range g.Cases {
			if len(c.Details) > 0 {
				table.Rows = append(table.Rows, reports.Row{Cells: []string{g.Name, c.Details[0], describeResult(c)}, Verdict: c.Verdict})
			}
		}
	}
	r.Sections = append(r.Sections, reports.Section{
		ID: "surface", Title: "What enabling the gate adds",
		Text:   []string{fmt.Sprintf("One API server with its own defaults was started with the gate off, on, and off again, on the same etcd. In each state %d requests that impersonate were allowed and as many refused.", p.requests)},
		Tables: []reports.Table{table},
	})
	return r, nil
}

// describe adds the server that a group was judged on.
func (p *plan) describe(g *reports.Group, evidence record.View) {
	for _, at := range stages {
		if at.name != g.Name {
			continue
		}
		cell := p.options(at.gate).Cell
		cell.Name = g.Name
		g.Cell = &cell
		if seen, err := record.Read[Surface](evidence, "surface/"+at.name); err == nil {
			g.Witness = &seen.Witness
		}
	}
}

// describeResult returns what came out, in a word or with the reason.
func describeResult(r reports.Result) string {
	if r.Verdict == verdicts.Passed {
		return "as expected"
	}
	return r.Reason
}
