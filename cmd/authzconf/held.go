package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/engine/upgrade"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// inputs are the files that a command line names, by their paths: what was read becomes part of the report.
type inputs map[string]string

func (in *inputs) read(path string) ([]byte, error) {
	if text, ok := (*in)[path]; ok {
		return []byte(text), nil
	}
	data, err := os.ReadFile(path)
	if *in == nil {
		*in = inputs{}
	}
	(*in)[path] = string(data)
	return data, err
}

// heldRun reads the command line of a report as the command does, and says what it asks for. Nothing is started.
type heldRun struct {
	report *reports.ConformanceReport
	set    *scenarios.Set
	asked  *reports.ConformanceReport
}

// asked is what the command line of a report asks for.
func asked(r *reports.ConformanceReport, set *scenarios.Set) (*reports.ConformanceReport, error) {
	if len(r.Command) < 2 {
		return nil, errors.New("there is none")
	}
	h := &heldRun{report: r, set: set, asked: &reports.ConformanceReport{}}
	flags := recordedFlags{inputs: maps.Clone(r.Inputs), held: h}
	var c *cobra.Command
	switch r.Command[1] {
	case "run":
		c = newRun(&conformanceFlags{recordedFlags: flags})
	case "matrix":
		c = newMatrix(&conformanceFlags{recordedFlags: flags})
	case "upgrade":
		c = newUpgrade(&upgradeFlags{recordedFlags: flags})
	default:
		return nil, fmt.Errorf("%q writes no such report", r.Command[1])
	}
	c.SetArgs(r.Command[2:])
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.Execute(); err != nil {
		return nil, err
	}
	if h.asked.Cells == nil {
		return nil, errors.New("it runs nothing")
	}
	return h.asked, nil
}

// existing are the cells of a cluster that is somebody else's: which version it is only the report tells.
func (h *heldRun) existing() (cells []target.Options) {
	for _, c := range h.report.Cells {
		if c.Provider == verdicts.Existing {
			cells = append(cells, target.Options{Cell: c.Cell})
		}
	}
	return cells
}

func (h *heldRun) plan(o session.Options) {
	h.asked.Require = o.Require
	for _, k := range o.KnownFailing {
		h.asked.KnownFailing = append(h.asked.KnownFailing, reports.KnownFailingState{KnownFailing: k})
	}
	for _, p := range o.Plan {
		h.add(p)
		if p.NeedsAgents() {
			h.asked.Cells[len(h.asked.Cells)-1].Agents = &reports.Agents{}
		}
	}
}

func (h *heldRun) walk(o upgrade.Options) error {
	o.Texts.Set = h.set
	walk, _, err := o.Plan()
	if err != nil {
		return err
	}
	for _, stage := range walk.Stages {
		h.add(stage.Plan)
	}
	return nil
}

// add adds what a plan asks of a cell.
func (h *heldRun) add(p session.CellPlan) {
	found := p.Target.Wanted()
	cell := reports.Cell{Cell: found.Cell, Facts: found.Facts, Witness: found.Witness}
	p.NotRun(&cell)
	h.asked.Cells = append(h.asked.Cells, cell)
}

// texts are the scenarios of the flags, or those of the report that is held to them.
func (f *conformanceFlags) texts() (reports.Texts, error) {
	if f.held != nil {
		return reports.Texts{Set: f.held.set}, nil
	}
	return f.load()
}
