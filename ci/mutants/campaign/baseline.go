package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Baseline is what the unmutated program did in each cell.
type Baseline struct {
	Cells []*CellBaseline
}

// CellBaseline is one cell: which scenarios come by which mutants.
type CellBaseline struct {
	Target target.Options
	// All are the cell's scenarios, the quick ones first.
	All []*scenarios.Scenario
	// Took is how long each took.
	Took map[string]time.Duration
	// reached are the scenarios that come by each mutant, quick ones first.
	reached map[int][]*scenarios.Scenario
	// atStart are the mutants the program comes by before the first scenario.
	atStart map[int]bool
}

// Candidates are the scenarios that can notice a mutant: those that come by its
// place; or all, if the program comes by it only while it starts.
func (c *CellBaseline) Candidates(number int) []*scenarios.Scenario {
	if reached := c.reached[number]; len(reached) > 0 {
		return reached
	}
	if c.atStart[number] {
		return c.All
	}
	return nil
}

// needsStart says whether a mutant has to be the chosen one from the start: the
// program comes by it only then, or it changes what the server keeps in its
// caches, where it could meet what another mutant left.
func (c *CellBaseline) needsStart(m mutate.Mutant) bool {
	return len(c.reached[m.Number]) == 0 || m.File == "cache.go"
}

// measure runs all scenarios of a cell against the program with no mutant
// chosen, which they have to pass, and finds what each comes by. Scenarios that
// wait run side by side, and are taken to come by the same.
func (c *Campaign) measure(ctx context.Context, plan session.CellPlan) (*CellBaseline, error) {
	base := &CellBaseline{
		Target: plan.Target, Took: map[string]time.Duration{},
		reached: map[int][]*scenarios.Scenario{}, atStart: map[int]bool{},
	}
	var waiting []*scenarios.Scenario
	for _, item := range plan.Items {
		switch {
		case item.Fate != session.Run:
		case item.Scenario.Waits() > 0:
			waiting = append(waiting, item.Scenario)
		default:
			base.All = append(base.All, item.Scenario)
		}
	}
	quick := len(base.All)
	base.All = append(base.All, waiting...)
	if err := base.findKubectl(ctx); err != nil {
		return nil, err
	}
	s, err := c.start(ctx, base.Target, 0)
	if err != nil {
		return nil, err
	}
	return base, errors.Join(base.run(ctx, s, quick), s.stop())
}

// findKubectl finds the program that some of the scenarios run.
func (c *CellBaseline) findKubectl(ctx context.Context) (err error) {
	if slices.ContainsFunc(c.All, (*scenarios.Scenario).RunsKubectl) {
		c.Target.Kubectl, err = c.Target.Binaries.Kubectl(ctx)
	}
	return err
}

func (c *CellBaseline) run(ctx context.Context, s *server, quick int) error {
	started, err := s.shared.take()
	if err != nil {
		return err
	}
	for _, n := range started {
		c.atStart[n] = true
	}
	note := func(which []*scenarios.Scenario) error {
		numbers, err := s.shared.take()
		for _, n := range numbers {
			c.reached[n] = append(c.reached[n], which...)
		}
		return err
	}
	for i, scenario := range c.All[:quick] {
		if err := c.pass(ctx, s, scenario); err != nil {
			return err
		}
		if err := note(c.All[i : i+1]); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(c.All))
	var mu sync.Mutex
	for _, scenario := range c.All[quick:] {
		wg.Go(func() {
			result := s.try(ctx, scenario)
			mu.Lock()
			defer mu.Unlock()
			c.Took[scenario.ID] = result.took
			if err := unmutated(ctx, scenario, result); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return note(c.All[quick:])
	}
}

// pass runs a scenario that has to pass.
func (c *CellBaseline) pass(ctx context.Context, s *server, scenario *scenarios.Scenario) error {
	result := s.try(ctx, scenario)
	c.Took[scenario.ID] = result.took
	return unmutated(ctx, scenario, result)
}

// unmutated is an error if a result is not that of a sound program.
func unmutated(ctx context.Context, scenario *scenarios.Scenario, o outcome) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.Verdict == verdicts.Passed || o.unsteady:
		return nil
	}
	return fmt.Errorf("the unmutated program does not pass %s: %s: %s", scenario.ID, o.Verdict, o.Reason)
}
