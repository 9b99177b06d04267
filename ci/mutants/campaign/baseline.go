package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/engine/session"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// cellBaseline is what the unmutated program did in one cell: which scenarios reach which mutants.
type cellBaseline struct {
	target  target.Options
	mutants []mutate.Mutant // in the order of the source
	// all are the cell's scenarios, those that wait last, and took is how long each took.
	all  []*scenarios.Scenario
	took map[string]time.Duration
	// start is how long the server took to start.
	start time.Duration
	// reached are the scenarios that reach each mutant, in the same order.
	reached map[int][]*scenarios.Scenario
	// atStart are the mutants that the program reaches before the first scenario.
	atStart map[int]bool
}

// candidates are the scenarios that can detect a mutant: those that reach its place; or all, if the program
// reaches it only while it starts.
func (c *cellBaseline) candidates(number int) []*scenarios.Scenario {
	if reached := c.reached[number]; len(reached) > 0 || !c.atStart[number] {
		return reached
	}
	return c.all
}

// kinds are, by scenario, the places that it reaches of a mutant's function.
func (c *cellBaseline) kinds(m mutate.Mutant) map[string]string {
	out := map[string]string{}
	for _, n := range c.mutants {
		if n.File == m.File && n.Function == m.Function {
			for _, s := range c.reached[n.Number] {
				out[s.ID] += string(rune(n.Number))
			}
		}
	}
	return out
}

// needsStart says whether a mutant has to be the chosen one from the start: the program reaches it only then, or
// it changes what the server keeps in its caches, where it could meet what another mutant left.
func (c *cellBaseline) needsStart(m mutate.Mutant) bool {
	return len(c.reached[m.Number]) == 0 || m.File == "cache.go"
}

// measure runs all scenarios of a cell against the program with no mutant chosen, which they have to pass, and
// finds what each reaches. Scenarios that wait run side by side, and are taken to reach the same.
func (c *Campaign) measure(ctx context.Context, plan session.CellPlan) (_ *cellBaseline, err error) {
	base := &cellBaseline{
		target: plan.Target, mutants: c.Sources.Mutants, took: map[string]time.Duration{},
		reached: map[int][]*scenarios.Scenario{}, atStart: map[int]bool{},
	}
	for _, item := range plan.Items {
		if item.Fate == session.Run {
			base.all = append(base.all, item.Scenario)
		}
	}
	if slices.ContainsFunc(base.all, (*scenarios.Scenario).RunsKubectl) {
		if base.target.Kubectl, err = base.target.Binaries.Kubectl(ctx); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	s, err := c.start(ctx, base.target, 0)
	if err != nil {
		return nil, err
	}
	base.start = time.Since(begin)
	return base, errors.Join(base.run(ctx, s), s.stop())
}

func (c *cellBaseline) run(ctx context.Context, s *server) error {
	started, err := s.shared.take()
	if err != nil {
		return err
	}
	for _, n := range started {
		c.atStart[n] = true
	}
	quick, waiting := split(c.all)
	c.all = slices.Concat(quick, waiting)
	var mu sync.Mutex
	// pass runs scenarios side by side that have to pass, and notes what they reach.
	pass := func(which ...*scenarios.Scenario) error {
		var group errgroup.Group
		for _, scenario := range which {
			group.Go(func() error {
				result := s.try(ctx, scenario)
				mu.Lock()
				defer mu.Unlock()
				c.took[scenario.ID] = result.took
				return unmutated(ctx, scenario, result)
			})
		}
		if err := causeOr(ctx, group.Wait()); err != nil {
			return err
		}
		numbers, err := s.shared.take()
		for _, n := range numbers {
			c.reached[n] = append(c.reached[n], which...)
		}
		return err
	}
	for _, scenario := range quick {
		if err := pass(scenario); err != nil {
			return err
		}
	}
	return pass(waiting...)
}

// split parts scenarios that wait from the others.
func split(all []*scenarios.Scenario) (quick, waiting []*scenarios.Scenario) {
	for _, s := range all {
		if s.Waits() > 0 {
			waiting = append(waiting, s)
		} else {
			quick = append(quick, s)
		}
	}
	return quick, waiting
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
