// Package explore sends generated cases to real API servers and judges what they do by the model: a disagreement
// means that one of the two is wrong. Most cases have their grants answered by the recorder's first point, which
// takes no time; one in rbacShare has them as RBAC objects, so that the rules of RBAC stay part of what is looked
// at.
package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// batchSize is how many cases the server's metrics are read once for.
	batchSize = 200
	// rbacShare is one in how many cases has its grants as RBAC objects. It has no
	// factor in common with a number of lanes.
	rbacShare = 13
	// maxDisagreements ends a lane: so many mean that one thing is wrong, and each takes seconds to make small.
	maxDisagreements = 10
	// maxLanes is how many control planes there are at most for one cell.
	maxLanes = 4
)

// Options are what to explore.
type Options struct {
	// Cells are explored one after the other.
	Cells []target.Options
	// Cases is how many cases each cell gets, the same ones.
	Cases int
	Seed  int64
	// Events receives progress, from several goroutines; it must be set.
	Events func(Event)

	// tamper changes what is predicted, for a test to see that it is noticed.
	tamper func(*scenarios.Scenario)
}

// Event is progress that a person may want to see.
type Event struct {
	// Text is set for what is worth a line.
	Text string
	// Cell, Done and Cases say how far a cell is.
	Cell        string
	Done, Cases int
	// PerSecond is the rate so far, Disagreements how many were confirmed.
	PerSecond     float64
	Disagreements int
}

// Run explores all cells. An error is the user's to mend; everything else is in
// the report. When ctx ends, what was found so far is reported.
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
	cell   target.Options
	lanes  []*lane
	pieces *reports.Pieces // nil where evidence is read

	mu   sync.Mutex // over what lanes tell of their progress
	done map[*lane]CellReport
}

func (x *explorer) run(ctx context.Context) error {
	x.done = map[*lane]CellReport{}
	count := max(1, min(runtime.GOMAXPROCS(0), maxLanes, x.o.Cases/batchSize))
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
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	x.say("%s", x.report().line())
	return nil
}

// report puts what the lanes found together.
func (x *explorer) report() CellReport {
	x.mu.Lock()
	defer x.mu.Unlock()
	sum := x.lanes[0].found
	for _, l := range x.lanes[1:] {
		sum = sum.and(l.found)
	}
	return sum
}

// progress tells how far the cell is; c is what a lane found so far.
func (x *explorer) progress(l *lane) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done[l] = l.found
	sum := CellReport{}
	for _, c := range x.done {
		sum = sum.and(c)
	}
	x.o.Events(Event{
		Cell: x.cell.Cell.Name, Done: sum.Cases, Cases: x.o.Cases,
		PerSecond: float64(sum.Cases) / max(sum.Seconds, 1e-9), Disagreements: len(sum.Disagreements),
	})
}

func (x *explorer) say(format string, args ...any) {
	x.o.Events(Event{Text: x.cell.Cell.Name + ": " + fmt.Sprintf(format, args...)})
}
