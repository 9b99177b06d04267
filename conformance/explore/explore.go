// Package explore sends generated cases to real API servers and judges what they do by the model: a disagreement means
// that one of the two is wrong. Most cases have their grants answered by the recorder's first point, which takes no
// time; one in rbacShare has them as RBAC objects, so that the rules of RBAC stay part of what is looked at.
package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/oracle/cases"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	batchSize = 200 // how many cases the server's metrics are read once for
	// rbacShare is one in how many cases has RBAC objects as grants. It shares no factor with a number of lanes.
	rbacShare = 13
	// maxDisagreements ends a lane: so many mean that one thing is wrong, and each takes seconds to make small.
	maxDisagreements = 10
	maxLanes         = 4 // how many control planes there are at most for one cell
	// lanesPerProcessor is more than one, for lanes wait: for what is remembered to expire, and for servers to start.
	lanesPerProcessor = 2
)

// Options are what to explore.
type Options struct {
	Cells []server.Options // explored one after the other
	Cases int              // how many cases each cell gets, the same ones
	Seed  int64
	// Events receives progress, from several goroutines; it must be set.
	Events func(Event)

	// Sent, if given, is called after every request, and may say which statements of the server it reached; lanes are one then.
	Sent func(number int, made cases.Choice)

	// tamper changes what is predicted, for a test to see that it is noticed.
	tamper func(*scenarios.Scenario)
}

// Event is progress that a person may want to see.
type Event struct {
	Text string // set for what is worth a line
	// Cell, Done and Cases say how far a cell is.
	Cell          string
	Done, Cases   int
	PerSecond     float64 // the rate so far, Disagreements how many were confirmed
	Disagreements int
}

// Run explores all cells. An error is the user's to mend; all else is in the report, also when ctx ends.
func Run(ctx context.Context, o Options) (*Report, *reports.Pieces, error) {
	report, pieces := &Report{Seed: o.Seed, Cases: o.Cases}, &reports.Pieces{}
	for _, c := range o.Cells {
		if ctx.Err() != nil {
			break
		}
		x := &explorer{o: o, cell: c, pieces: pieces}
		if err := x.run(ctx); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.Cell.Name, err)
		}
		report.Cells = append(report.Cells, x.report())
	}
	report.Interrupted = ctx.Err() != nil
	_, err := reports.Keep(pieces, endPiece, &ended{Interrupted: report.Interrupted})
	report.conclude()
	return report, pieces, err
}

// explorer explores one cell, in lanes: requests are sent one at a time to each server, and one server and one
// sender that wait for each other cannot keep two processors busy. Each lane has a control plane of its own, so
// that none sees anything of another.
type explorer struct {
	o      Options
	cell   server.Options
	lanes  []*lane
	pieces *reports.Pieces // nil where evidence is read
	mu     sync.Mutex      // over what lanes tell of their progress
}

func (x *explorer) run(ctx context.Context) error {
	lanes := maxLanes
	if x.o.Sent != nil {
		lanes = 1
	}
	count := max(1, min(lanesPerProcessor*runtime.GOMAXPROCS(0), lanes, x.o.Cases/batchSize))
	for i := range count {
		x.lanes = append(x.lanes, x.newLane(i, count))
	}
	errs := make([]error, count)
	var ready, ended sync.WaitGroup
	ready.Add(count)
	for i, l := range x.lanes {
		ended.Go(func() {
			up := false
			l.guard(func() { up, errs[i] = l.start(ctx) })
			ready.Done()
			ready.Wait() // starting a control plane takes the time of those that run
			if up {
				l.guard(func() { l.broke(l.batches(ctx)) })
			}
			l.stop()
			errs[i] = errors.Join(errs[i], l.keep())
		})
	}
	ended.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	x.say("%s", x.report().Line())
	return nil
}

func (x *explorer) report() (sum CellReport) {
	sum = x.lanes[0].found
	for _, l := range x.lanes[1:] {
		sum = sum.and(l.found)
	}
	return sum
}

// progress tells how far the cell is; l has just found more.
func (x *explorer) progress(l *lane) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l.told = l.found
	sum := CellReport{}
	for _, l := range x.lanes {
		sum = sum.and(l.told)
	}
	x.o.Events(Event{
		Cell: x.cell.Cell.Name, Done: sum.Cases, Cases: x.o.Cases,
		PerSecond: float64(sum.Cases) / max(sum.Seconds, 1e-9), Disagreements: len(sum.Disagreements),
	})
}

func (x *explorer) say(format string, args ...any) {
	x.o.Events(Event{Text: x.cell.Cell.Name + ": " + fmt.Sprintf(format, args...)})
}

// Report is what came out of exploring.
type Report struct {
	reports.Record `json:",inline"`

	Seed  int64        `json:"seed"`
	Cases int          `json:"cases"`
	Cells []CellReport `json:"cells"`
	// Interrupted says that not everything that was asked for was done.
	Interrupted bool `json:"interrupted,omitempty"`
}

// CellReport is what came out of one cell.
type CellReport struct {
	Name       string `json:"name"`
	Kubernetes string `json:"kubernetes"`
	Gate       string `json:"gate"`
	Lanes      int    `json:"lanes"` // how many control planes it was explored on
	// Cases, Requests and Reviews are how many were judged; OverRBAC of the cases had their grants as RBAC objects.
	Cases    int `json:"cases"`
	Requests int `json:"requests"`
	Reviews  int `json:"reviews"`
	OverRBAC int `json:"overRBAC"`
	Special  int `json:"special"` // cases that went past an expiry or reloads, or were sent before and after a restart
	Beside   int `json:"beside"`  // cases that went to two API servers, and of Flipped the gate of one was switched twice
	Flipped  int `json:"flipped"`
	// Undecided are requests around the end of a second of the caches of which the model cannot tell what they find.
	Undecided int     `json:"undecided"`
	Seconds   float64 `json:"seconds"`
	// Pairs of the AllPairs pairs of levels came up.
	Pairs    int `json:"pairs"`
	AllPairs int `json:"allPairs"`
	// NotConfirmed cases differed in a batch, and not alone; Recounts batches had totals that did not add up.
	NotConfirmed int `json:"notConfirmed"`
	Recounts     int `json:"recounts"`
	// Stopped says that there were too many disagreements to go on.
	Stopped       bool           `json:"stopped,omitempty"`
	Disagreements []Disagreement `json:"disagreements,omitempty"`
	Problems      []string       `json:"problems,omitempty"` // what broke in the environment
}

// Disagreement is a case in which model and server differ, made small.
type Disagreement struct {
	Case   int    `json:"case"`
	Choice string `json:"choice"`
	Reason string `json:"reason"`
	// OverRBAC says that it is the same with RBAC objects as grants.
	OverRBAC    bool                  `json:"overRBAC"`
	Differences []verdicts.Difference `json:"differences"`
	Scenario    string                `json:"-"` // the smallest case as a file, with the model's expectations
}

func (c CellReport) and(d CellReport) CellReport {
	c.Cases += d.Cases
	c.Requests += d.Requests
	c.Reviews += d.Reviews
	c.OverRBAC += d.OverRBAC
	c.Special += d.Special
	c.Beside += d.Beside
	c.Flipped += d.Flipped
	c.Undecided += d.Undecided
	c.Seconds = max(c.Seconds, d.Seconds)
	c.Pairs, c.AllPairs = max(c.Pairs, d.Pairs), max(c.AllPairs, d.AllPairs)
	c.NotConfirmed += d.NotConfirmed
	c.Recounts += d.Recounts
	c.Stopped = c.Stopped || d.Stopped
	c.Disagreements = slices.Concat(c.Disagreements, d.Disagreements)
	c.Problems = slices.Concat(c.Problems, d.Problems)
	return c
}

// Line says on one line what came out.
func (c CellReport) Line() string {
	text := fmt.Sprintf("%d cases, %d requests, %d reviews in %.0f s (%.0f cases/s), %d over RBAC, %d past an expiry (%d requests not decided), a reload or a restart, %d on two servers, %d with the gate switched; %d of %d pairs; %d disagreements",
		c.Cases, c.Requests, c.Reviews, c.Seconds, float64(c.Cases)/max(c.Seconds, 1e-9), c.OverRBAC, c.Special, c.Undecided, c.Beside, c.Flipped, c.Pairs, c.AllPairs, len(c.Disagreements))
	if c.NotConfirmed > 0 {
		text += fmt.Sprintf("; %d differed once and not again", c.NotConfirmed)
	}
	if c.Stopped {
		text += "; stopped early"
	}
	return text
}

// Disagreed tells whether model and server differ anywhere.
func (r *Report) Disagreed() bool {
	return slices.ContainsFunc(r.Cells, func(c CellReport) bool { return len(c.Disagreements) > 0 })
}

// Broken says what keeps the report from being believed: something broke, was seen once only, or was not done.
func (r *Report) Broken() error {
	var errs []error
	for _, c := range r.Cells {
		errs = append(errs, seq.Map(c.Problems, func(p string) error { return fmt.Errorf("%s: %s", c.Name, p) })...)
		if c.NotConfirmed > 0 || c.Recounts > 0 {
			errs = append(errs, fmt.Errorf("%s: %d cases differed once and not again, %d batches did not add up", c.Name, c.NotConfirmed, c.Recounts))
		}
	}
	if r.Interrupted {
		errs = append(errs, errors.New("interrupted"))
	}
	return errors.Join(errs...)
}

// Folder is a report in a folder.
var Folder = filing.Kind{
	Name: "report of explore", Marker: "explore.yaml", Head: map[string]string{"seed": "", "cells": ""},
	Files: append([]string{"scenarios/*/case-*.yaml", "evidence/*.json.gz", "evidence/*/*.json.gz"}, reports.BriefFiles...),
}

func (r *Report) conclude() { r.Conclude(r.Disagreed(), r.Broken() != nil) }

// Pages are a scenario file for each disagreement.
func (r *Report) Pages() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range r.Cells {
		for _, d := range c.Disagreements {
			files[fmt.Sprintf("scenarios/%s/case-%06d.yaml", c.Name, d.Case)] = []byte(d.Scenario)
		}
	}
	return files, nil
}
