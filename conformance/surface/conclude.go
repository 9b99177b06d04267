package surface

import (
	"fmt"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
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
	server.NoteVersions(r, seq.Map(p.stages, func(s stage) server.Options { return s.options })...)
	table := reports.Table{Columns: []string{"stage", "what was compared", "result"}}
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
		ID: "surface", Title: "What enabling the gate adds", Text: []string{p.describeStages()},
		Tables: []reports.Table{table, p.tabulateObjects(evidence)},
	})
	return r, nil
}

// describeStages says what was run.
func (p *plan) describeStages() string {
	what := "One API server with its own defaults was started with the gate off, on, and off again, on the same etcd."
	if p.path != "" {
		what = fmt.Sprintf(
			"API servers with their own defaults went through the path %s on the same etcd, and through it once more, on another etcd, with the gate off everywhere (baseline). Each stage is compared with the one in its place there.",
			p.path,
		)
	}
	return what + fmt.Sprintf(" In each state %d requests that impersonate were allowed and as many refused.", p.requests)
}

// tabulateObjects returns how many objects etcd held at the end of each stage, and of how many bytes.
func (p *plan) tabulateObjects(evidence record.View) reports.Table {
	t := reports.Table{Columns: []string{"stage", "objects in etcd", "bytes"}}
	for _, at := range p.stages {
		if surface, err := record.Read[Surface](evidence, "surface/"+at.name); err == nil {
			t.Rows = append(t.Rows,
				reports.Row{Cells: []string{at.name, fmt.Sprint(len(surface.Objects)), fmt.Sprint(sumOf(surface.Objects))}},
			)
		}
	}
	return t
}

// describe adds the server that a group was judged on.
func (p *plan) describe(g *reports.Group, evidence record.View) {
	cell := p.find(g.Name).options.Cell
	cell.Name = g.Name
	g.Cell = &cell
	if surface, err := record.Read[Surface](evidence, "surface/"+g.Name); err == nil {
		g.Witness = &surface.Witness
	}
}

// describeResult returns what came out, in a word or with the reason.
func describeResult(r reports.Result) string {
	if r.Verdict == verdicts.Passed {
		return "as expected"
	}
	return r.Reason
}
