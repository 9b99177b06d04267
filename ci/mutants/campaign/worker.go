package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// mutantsPerServer is how many mutants one server is before another takes its
// place: what scenarios leave behind makes a server slower.
const mutantsPerServer = 40

// worker tries one mutant after the other, and keeps a server for each cell.
type worker struct {
	campaign *Campaign
	servers  map[string]*server // by cell
}

func (w *worker) stop() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

// drop ends the server of a cell.
func (w *worker) drop(base *CellBaseline) error {
	s := w.servers[base.Target.Cell.Name]
	if s == nil {
		return nil
	}
	delete(w.servers, base.Target.Cell.Name)
	return s.stop()
}

// server is the unmutated server of a cell, started if there is none.
func (w *worker) server(ctx context.Context, base *CellBaseline) (*server, error) {
	name := base.Target.Cell.Name
	if s := w.servers[name]; s != nil {
		if s.served < mutantsPerServer && s.target.Err() == nil {
			return s, nil
		}
		if err := w.drop(base); err != nil {
			return nil, err
		}
	}
	s, err := w.campaign.startTwice(ctx, base.Target, 0)
	if err != nil {
		return nil, err
	}
	w.servers[name] = s
	return s, nil
}

// mutant tries the cells in which the mutant is come by until one catches it.
func (w *worker) mutant(ctx context.Context, m mutate.Mutant) (Result, error) {
	begin := time.Now()
	result := Result{Mutant: m, Status: Unreached}
	for _, base := range w.campaign.baseline.Cells {
		candidates := base.Candidates(m.Number)
		if len(candidates) == 0 {
			continue
		}
		result.Status = Survived
		if err := w.cell(ctx, base, candidates, &result); err != nil {
			return result, err
		}
		if result.Status.Caught() {
			result.Cell = base.Target.Cell.Name
			break
		}
	}
	result.Took = seconds(time.Since(begin))
	return result, nil
}

// cell tries the candidates of one cell, on a server that was other mutants
// before, or on one that is this mutant from its start.
func (w *worker) cell(ctx context.Context, base *CellBaseline, candidates []*scenarios.Scenario, result *Result) error {
	if base.needsStart(result.Mutant) {
		return w.fresh(ctx, base, candidates, result)
	}
	s, err := w.server(ctx, base)
	if err != nil {
		return err
	}
	s.served++
	if err := s.shared.choose(result.Number); err != nil {
		return err
	}
	w.campaign.scenarios(ctx, s, base, candidates, result)
	if err := s.shared.choose(0); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !result.Status.Caught():
		return nil
	}
	// What catches the mutant has to pass on the same server without it.
	o := s.try(ctx, find(candidates, result.Scenario))
	sound := o.Verdict == verdicts.Passed || o.unsteady
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if sound && result.Status == Killed {
		return nil
	}
	if err := w.drop(base); err != nil || sound {
		return err
	}
	*result = Result{Mutant: result.Mutant, Status: Survived, Tried: result.Tried, Unsteady: result.Unsteady}
	return w.fresh(ctx, base, candidates, result)
}

func find(candidates []*scenarios.Scenario, id string) *scenarios.Scenario {
	for _, s := range candidates {
		if s.ID == id {
			return s
		}
	}
	panic(fmt.Sprintf("scenario %s caught a mutant but is no candidate", id))
}

// fresh tries the candidates on a server that is the mutant from its start.
func (w *worker) fresh(ctx context.Context, base *CellBaseline, candidates []*scenarios.Scenario, result *Result) error {
	s, err := w.campaign.startTwice(ctx, base.Target, result.Number)
	var usage *local.UsageError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &usage):
		return err
	case err != nil:
		result.Status, result.Scenario, result.Difference = Refused, "(witness)", firstLine(err.Error())
		return nil
	}
	w.campaign.scenarios(ctx, s, base, candidates, result)
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), s.stop())
	}
	return s.stop()
}

// scenarios runs candidates until one kills the mutant: those that wait last.
func (c *Campaign) scenarios(ctx context.Context, s *server, base *CellBaseline, candidates []*scenarios.Scenario, result *Result) {
	quick, waiting := c.killers.order(result.Mutant, base, candidates)
	c.quick(ctx, s, quick, result)
	if !result.Status.Caught() && ctx.Err() == nil {
		c.waiting(ctx, s, waiting, result)
	}
}
