package conformance

import (
	"slices"
	"time"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

// Conclude makes the report: the cells with their witnesses, what was measured, where documents and servers differ, and
// what changed from cell to cell.
func (p *Plan) Conclude(results []reports.Result, view record.View) (*reports.Report, error) {
	r := &reports.Report{Subject: NewSubject(p.cells[0].Target.Cell.Provider), Groups: product.Group(p.Cases(), results)}
	server.NoteVersions(r, seq.Map(p.cells, func(c CellPlan) server.Options { return c.Target })...)
	for i, c := range p.cells {
		DescribeGroup(&r.Groups[i], c, view)
		noteAgents(r, p.seed, c.Target.Cell.Name, view)
	}
	r.Figures = append(r.Figures, MedianFigure(p.cells, view)...)
	r.Figures = append(r.Figures, machineFigures(view)...)
	r.Sections = append(r.Sections, DescribeDivergences(r.Groups, p.texts.Set, view)...)
	r.Sections = append(r.Sections, describeChanges(p.texts.Set, p.cells, view)...)
	r.Sections = append(r.Sections, describeUnchanged(p.texts.Set, p.cells, r.Groups, view)...)
	return r, nil
}

// NewSubject returns what is judged on control planes of a provider.
func NewSubject(provider string) reports.Subject {
	return reports.Subject{Name: "kube-apiserver", Provider: provider}
}

// MedianFigure returns the median time of a scenario, without its waits; nothing if none ran.
func MedianFigure(cells []CellPlan, view record.View) []reports.Figure {
	var took []time.Duration
	for _, c := range cells {
		for _, s := range c.Runs() {
			if e := findEvidence(view, c.Target.Cell.Name, s.ID); e != nil {
				took = append(took, e.Duration()-s.Waits())
			}
		}
	}
	if len(took) == 0 {
		return nil
	}
	slices.Sort(took)
	return []reports.Figure{{Name: "median time of a scenario, waits apart", Value: milliseconds(took[len(took)/2]), Unit: "ms"}}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// machineFigures returns what the run took of the machine, nothing if it ended before that was known.
func machineFigures(view record.View) []reports.Figure {
	m, err := ReadMachine(view)
	if err != nil {
		return nil
	}
	figures := []reports.Figure{{Name: "cells at once", Value: float64(max(1, m.Parallel))}}
	if m.PeakMemoryBytes > 0 {
		figures = append(figures, reports.Figure{Name: "peak memory", Value: float64(m.PeakMemoryBytes >> 20), Unit: "MiB"})
	}
	return append(figures, processorFigures(*m)...)
}

// causes are the words of a report for why a scenario was not run.
var causes = map[Fate]reports.NotRunCause{
	NotSelected: reports.CauseTarget, LeftOut: reports.CauseUser, NotMade: reports.CausePath, Unsupported: reports.CauseTargetLacks,
}

// Labeller returns the labels of scenarios. It finds out those of each once.
type Labeller map[*scenarios.Scenario][]string

func (l Labeller) label(s *scenarios.Scenario) []string {
	if _, known := l[s]; !known {
		l[s] = Labels(s)
	}
	return l[s]
}

// Cases returns the cases of a cell: its scenarios, and what node agents show.
func (p CellPlan) Cases(labels Labeller) (cases []product.Case) {
	cell := p.Target.Cell.Name
	for _, item := range p.Items {
		c := product.NewCase(cell, item.Scenario.ID, item.Scenario.Level, labels.label(item.Scenario)...)
		c.NotRun = notRun(item.Fate, item.Why)
		cases = append(cases, c)
	}
	for _, item := range p.Agents {
		c := product.NewCase(cell, item.name(), scenarios.Core, agentLabels()...)
		c.NotRun = notRun(item.Fate, item.Why)
		cases = append(cases, c)
	}
	return cases
}

func notRun(f Fate, why string) *product.NotRun {
	if f == Run {
		return nil
	}
	return &product.NotRun{Cause: causes[f], Why: why}
}
