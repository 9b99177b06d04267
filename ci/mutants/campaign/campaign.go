package campaign

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/ci/mutants/program"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Campaign is a run of the suite against mutants.
type Campaign struct {
	Sources *program.Sources
	// Program is the kube-apiserver with all mutants in it.
	Program string
	// Plan says which scenarios run in which cell.
	Plan []session.CellPlan
	// Seed makes names unique.
	Seed int64
	// Workers is the number of control planes side by side.
	Workers int
	// Progress is called with a line for people, from one goroutine at a time.
	Progress func(line string)

	baseline Baseline
	killers  *killers
	servers  atomic.Int64 // started so far
	mu       sync.Mutex
}

// Measure runs the suite against the unmutated program, which has to pass, and
// finds out which scenarios come by which mutants.
func (c *Campaign) Measure(ctx context.Context) error {
	c.killers = newKillers()
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cells := make([]*CellBaseline, len(c.Plan))
	places := make(chan struct{}, c.Workers)
	var wg sync.WaitGroup
	for i, plan := range c.Plan {
		if plan.Count(session.Run) == 0 {
			continue
		}
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			base, err := c.measure(ctx, plan)
			if err != nil {
				cancel(fmt.Errorf("%s: %w", plan.Target.Cell.Name, err))
				return
			}
			cells[i] = base
			c.say("%s: the unmutated program passes %d scenarios, which come by %d mutants",
				plan.Target.Cell.Name, len(base.All), len(base.reached))
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.baseline.Cells = slices.DeleteFunc(cells, func(b *CellBaseline) bool { return b == nil })
	c.say("measured in %.0f s", time.Since(begin).Seconds())
	return nil
}

func (c *Campaign) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Progress(fmt.Sprintf(format, args...))
}

// Run runs the suite against each mutant and calls done with each result, from
// one goroutine at a time. An error means that the run is not complete.
func (c *Campaign) Run(ctx context.Context, mutants []mutate.Mutant, done func(Result)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan mutate.Mutant)
	var wg sync.WaitGroup
	for range c.Workers {
		wg.Go(func() {
			w := &worker{campaign: c, servers: map[string]*server{}}
			defer func() {
				if err := w.stop(); err != nil {
					cancel(err)
				}
			}()
			for m := range queue {
				result, err := w.mutant(ctx, m)
				if err != nil {
					cancel(fmt.Errorf("mutant %s: %w", m.Key, err))
					continue
				}
				c.mu.Lock()
				done(result)
				c.mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		if ctx.Err() != nil {
			break
		}
		queue <- m
	}
	close(queue)
	wg.Wait()
	return context.Cause(ctx)
}

// patience is how many further scenarios may kill a mutant that was noticed: a
// difference says more than results that cannot be judged.
const patience = 5

// quick runs scenarios that do not wait until one kills the mutant.
func (c *Campaign) quick(ctx context.Context, s *server, quick []*scenarios.Scenario, result *Result) {
	left := len(quick)
	for _, scenario := range quick {
		if ctx.Err() != nil || left == 0 {
			return
		}
		before := result.Status
		c.note(result, scenario, s.try(ctx, scenario))
		switch {
		case result.Status == Killed:
			return
		case result.Status == Noticed && before != Noticed:
			left = patience
		default:
			left--
		}
	}
}

// waiting runs scenarios that wait, side by side, until one catches the mutant.
func (c *Campaign) waiting(ctx context.Context, s *server, waiting []*scenarios.Scenario, result *Result) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, scenario := range waiting {
		wg.Go(func() {
			o := s.try(ctx, scenario)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil && c.note(result, scenario, o) {
				cancel()
			}
		})
	}
	wg.Wait()
}

// note puts an outcome into the result, and says whether it catches the mutant.
func (c *Campaign) note(result *Result, scenario *scenarios.Scenario, o outcome) bool {
	result.Tried++
	switch {
	case o.Verdict == verdicts.Passed:
		return false
	case o.unsteady:
		result.Unsteady = append(result.Unsteady, scenario.ID)
		return false
	case o.Verdict == verdicts.Failed:
		result.Status = Killed
	case result.Status == Noticed:
		return true
	default:
		result.Status = Noticed
	}
	result.Scenario, result.Blame = scenario.ID, string(o.Blame)
	result.Difference = firstLine(o.Reason)
	if len(o.Differences) > 0 {
		d := o.Differences[0]
		result.Difference = fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got)
	}
	c.killers.killed(result.Mutant, scenario.ID)
	return true
}
