package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// mutantsPerServer is how many mutants one server is before another takes its place: what scenarios leave behind
// makes a server slower.
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

// drop ends the server of a cell, if there is one.
func (w *worker) drop(base *cellBaseline) error {
	name := base.target.Cell.Name
	s := w.servers[name]
	delete(w.servers, name)
	if s == nil {
		return nil
	}
	return s.stop()
}

// server is the unmutated server of a cell, started if there is none.
func (w *worker) server(ctx context.Context, base *cellBaseline) (*server, error) {
	name := base.target.Cell.Name
	if s := w.servers[name]; s != nil && s.served < mutantsPerServer && s.target.Err() == nil {
		return s, nil
	}
	if err := w.drop(base); err != nil {
		return nil, err
	}
	s, err := w.campaign.startTwice(ctx, base.target, 0)
	if err == nil {
		w.servers[name] = s
	}
	return s, err
}

// mutant tries the cells in which the mutant is reached until one catches it.
func (w *worker) mutant(ctx context.Context, m mutate.Mutant) (Result, error) {
	begin := time.Now()
	result := Result{Mutant: m, Status: NotCovered}
	for _, base := range w.campaign.baseline {
		candidates := base.candidates(m.Number)
		if len(candidates) == 0 {
			continue
		}
		result.Status = Survived
		if err := w.cell(ctx, base, candidates, &result); err != nil {
			return result, err
		}
		if result.Status.Caught() {
			result.Cell = base.target.Cell.Name
			break
		}
	}
	result.Took = float64(time.Since(begin).Milliseconds()) / 1000
	return result, nil
}

// cell tries the candidates of one cell, on a server that was other mutants before, or on one that is this mutant
// from its start.
func (w *worker) cell(ctx context.Context, base *cellBaseline, candidates []*scenarios.Scenario, result *Result) error {
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
	w.campaign.scenarios(ctx, s, base, candidates, livePatience, result)
	if err := s.shared.choose(0); err != nil {
		return err
	}
	if result.broken == livePatience && !result.Status.Caught() && ctx.Err() == nil {
		// Nothing can be set up on this server. Maybe it does not even start.
		return errors.Join(w.drop(base), w.fresh(ctx, base, candidates, result))
	}
	if ctx.Err() != nil || !result.Status.Caught() {
		return context.Cause(ctx)
	}
	// What catches the mutant has to pass on the same server without it.
	o := s.try(ctx, candidates[indexOf(candidates, result.Scenario)])
	sound := o.Verdict == verdicts.Passed || o.unsteady
	if ctx.Err() != nil || sound && result.Status == Killed {
		return context.Cause(ctx)
	}
	if err := w.drop(base); err != nil || sound {
		return err
	}
	*result = Result{Mutant: result.Mutant, Status: Survived, Tried: result.Tried, Unsteady: result.Unsteady}
	return w.fresh(ctx, base, candidates, result)
}

// fresh tries the candidates on a server that is the mutant from its start. What that catches has to be as it should
// on an unmutated server that is started after it: a full disk stops both.
func (w *worker) fresh(ctx context.Context, base *cellBaseline, candidates []*scenarios.Scenario, result *Result) error {
	s, err := w.campaign.startTwice(ctx, base.target, result.Number)
	_, usage := errors.AsType[*local.UsageError](err)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case usage:
		return err
	case err != nil:
		result.Status, result.Scenario, result.Difference = Refused, "(witness)", firstLine(err.Error())
	default:
		w.campaign.scenarios(ctx, s, base, candidates, freshPatience, result)
		if err := s.stop(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil || !result.Status.Caught() {
		return context.Cause(ctx)
	}
	if err := w.drop(base); err != nil {
		return err
	}
	sound, err := w.server(ctx, base)
	if err != nil {
		return fmt.Errorf("the unmutated program does not start either: %w", err)
	}
	if i := indexOf(candidates, result.Scenario); i >= 0 {
		if o := sound.try(ctx, candidates[i]); o.Verdict != verdicts.Passed && ctx.Err() == nil {
			*result = Result{Mutant: result.Mutant, Status: Survived, Tried: result.Tried, Unsteady: append(result.Unsteady, result.Scenario)}
		}
	}
	return context.Cause(ctx)
}

func indexOf(all []*scenarios.Scenario, id string) int {
	return slices.IndexFunc(all, func(s *scenarios.Scenario) bool { return s.ID == id })
}

// After so many scenarios in a row that cannot be set up no more are run: on a server that became the mutant while it
// ran, and on one that is it from its start.
const (
	livePatience  = 3
	freshPatience = 20
)

// scenarios runs candidates until one kills the mutant: those that wait last.
func (c *Campaign) scenarios(ctx context.Context, s *server, base *cellBaseline, candidates []*scenarios.Scenario, patience int, result *Result) {
	quick, waiting := c.killers.order(result.Mutant, base, candidates)
	if c.Limit != nil {
		if limit := c.Limit(result.Mutant); limit > 0 && limit < len(quick) {
			quick, waiting = quick[:limit], nil
		}
	}
	c.quick(ctx, s, quick, patience, result)
	if !result.Status.Caught() && result.broken < patience && ctx.Err() == nil {
		c.waiting(ctx, s, waiting, result)
	}
}
