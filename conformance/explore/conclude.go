package explore

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Conclude implements product.Plan.
func (p *plan) Conclude(results []reports.Result, view record.View) (*reports.Report, error) {
	r := &reports.Report{Subject: reports.Subject{Name: "kube-apiserver"}, Groups: product.Group(p.cases, results)}
	disagreed := false
	for _, result := range results {
		disagreed = disagreed || result.Verdict == verdicts.Failed
	}
	var sum tally
	server.NoteVersions(r, seq.Map(p.cells, func(c *cell) server.Options { return c.options })...)
	for i, c := range p.cells {
		totals, err := p.tallyCell(c, view)
		if err != nil {
			return nil, err
		}
		sum = sum.add(totals)
		if untried := c.describeUntried(); untried != "" {
			r.AddNote(untried)
		}
		problems, err := c.describe(&r.Groups[i], totals, view)
		if err != nil {
			return nil, err
		}
		// A disagreement is one, whatever broke beside it.
		if len(problems) > 0 && !disagreed {
			r.AddUnknown(c.options.Cell.Name + ": " + strings.Join(problems, "; "))
		}
	}
	r.Subject.Provider = p.cells[0].options.Cell.Provider
	r.Figures = []reports.Figure{
		{Name: "cases", Value: float64(sum.Cases)}, {Name: "requests", Value: float64(sum.Requests)},
		{Name: "access reviews", Value: float64(sum.Reviews)}, {Name: "disagreements", Value: float64(sum.Disagreements)},
		{Name: "requests not decided", Value: float64(sum.Undecided)}, {Name: "differed once", Value: float64(sum.NotConfirmed)},
	}
	r.Sections = p.sections(view)
	return r, nil
}

// tallyCell adds up the batches of a cell of which there is evidence.
func (p *plan) tallyCell(c *cell, view record.View) (sum tally, err error) {
	for _, s := range c.sequences {
		for _, ref := range s.batches() {
			if !p.runs(ref) || !view.Has(ref.id()) {
				continue
			}
			r, err := p.judgeBatch(ref, view)
			if err != nil {
				continue // The case is invalid, and says why.
			}
			sum = sum.add(r.tally)
		}
	}
	return sum, nil
}

// describe adds what a reader should know of a cell, and returns what broke.
func (c *cell) describe(g *reports.Group, totals tally, view record.View) (problems []string, err error) {
	g.Cell = &c.options.Cell
	g.Facts = append(g.Facts,
		reports.Fact{Name: "explored", Value: totals.line()},
		reports.Fact{Name: "control planes", Value: fmt.Sprint(len(c.sequences))},
	)
	for _, s := range c.sequences {
		if !view.Has(s.key()) {
			continue
		}
		e, err := record.Read[sequenceEvidence](view, s.key())
		if err != nil {
			return nil, err
		}
		if e.Target != nil && g.Witness == nil {
			g.Target, g.Witness = &e.Target.Facts, &e.Target.Witness
		}
		problems = append(problems, e.Problems...)
	}
	return problems, nil
}

// sections list the disagreements, with their scenario files.
func (p *plan) sections(view record.View) []reports.Section {
	t := reports.Table{Columns: []string{"cell", "case", "made of", "why", "with RBAC objects", "scenario"}}
	for _, c := range p.cases {
		ref := p.refs[c.ID]
		if c.NotRun != nil || !view.Has(c.ID) {
			continue
		}
		r, err := p.judgeBatch(ref, view)
		if err != nil {
			continue // The case is invalid, and says why.
		}
		for _, d := range r.disagreements {
			cells := []string{c.Group, fmt.Sprint(d.number), d.choice, d.reason, fmt.Sprint(d.overRBAC), d.file}
			t.Rows = append(t.Rows, reports.Row{Cells: cells, Verdict: verdicts.Failed})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []reports.Section{{
		ID: "disagreements", Title: "Disagreements",
		Text:   []string{"Each was run again alone, and made small. What it means is for a person to find out: the model is wrong, or the server does something that the documents do not say."},
		Tables: []reports.Table{t},
	}}
}
