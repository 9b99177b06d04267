package session

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Event is progress that a person may want to see.
type Event struct {
	// Text is set for a step of the run as a whole, such as a target being ready.
	Text string
	// Result is set when a scenario has its verdict.
	Result *verdicts.Result
	// Took is how long the scenario ran, waits apart.
	Took time.Duration
}

// Session runs a plan: some cells at once, on each cell one scenario after the
// other, with those that wait beside them.
type Session struct {
	// Cells are in the order of the plan.
	Cells []*Cell
	// Parallel is how many cells run at once. Each has its target only while it
	// runs; then the next cell takes its place. 0 is all cells, with targets that
	// live until Stop.
	Parallel int

	seed   int64
	events func(Event)

	start    sync.Once
	startErr error
	ctx      context.Context // ends with Start's, with Stop, and on a usage error
	end      context.CancelCauseFunc
	workers  sync.WaitGroup
	memory   memoryWatch

	mu    sync.Mutex
	usage error // of the first cell that has one
}

// Cell is one target and what came out of it.
type Cell struct {
	Plan CellPlan
	// Target is nil unless the cell is running; Err says why it did not start.
	Target *target.Target
	Err    error
	// Witness is what the target said of itself.
	Witness reports.Witness
	// Ready is how long the target took to start.
	Ready time.Duration
	// Took is how long the scenarios took, waits included.
	Took time.Duration
	// Agents is what the node agents were allowed, where the cell has nodes.
	Agents *reports.Agents

	jobs     map[string]*job
	finished chan struct{} // closed when all jobs are done and Took is set
}

// job is a scenario that runs on a cell.
type job struct {
	scenario *scenarios.Scenario
	done     chan struct{}
	evidence *verdicts.Evidence
	result   verdicts.Result
}

// New prepares a session. events may be called from several goroutines.
func New(plan []CellPlan, seed int64, events func(Event)) *Session {
	s := &Session{seed: seed, events: events}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	for _, p := range plan {
		c := &Cell{Plan: p, jobs: map[string]*job{}, finished: make(chan struct{})}
		for _, item := range p.Items {
			if item.Fate == Run {
				c.jobs[item.Scenario.ID] = &job{scenario: item.Scenario, done: make(chan struct{})}
			}
		}
		s.Cells = append(s.Cells, c)
	}
	return s
}

// Result waits for the verdict of a scenario on a cell.
func (c *Cell) Result(ctx context.Context, id string) (verdicts.Result, error) {
	j := c.jobs[id]
	select {
	case <-j.done:
		return j.result, nil
	case <-ctx.Done():
		return verdicts.Result{}, ctx.Err()
	}
}

// Outcomes waits for everything that runs on the cell, and returns it in the
// order of the plan.
func (c *Cell) Outcomes() (evidence []*verdicts.Evidence, results []verdicts.Result) {
	<-c.finished
	for _, item := range c.Plan.Items {
		if j, ok := c.jobs[item.Scenario.ID]; ok {
			evidence, results = append(evidence, j.evidence), append(results, j.result)
		}
	}
	return evidence, results
}

// runCell runs the jobs of a cell: the waiting ones side by side from the start,
// for they mostly sleep, the others in order.
func (s *Session) runCell(c *Cell) {
	start := time.Now()
	defer func() {
		c.Took = time.Since(start)
		close(c.finished)
	}()
	run, err := c.replayer()
	if err != nil {
		for _, item := range c.Plan.Items {
			if j, ok := c.jobs[item.Scenario.ID]; ok {
				s.finish(c, j, invalidEvidence(c, j, verdicts.BlameEnvironment, err))
			}
		}
		return
	}
	s.runAgents(c)
	var wg sync.WaitGroup
	var quick []*job
	for _, item := range c.Plan.Items {
		j, ok := c.jobs[item.Scenario.ID]
		switch {
		case !ok:
		case j.scenario.Waits() > 0:
			wg.Go(func() { s.runJob(c, run, j) })
		default:
			quick = append(quick, j)
		}
	}
	for _, j := range quick {
		s.runJob(c, run, j)
	}
	wg.Wait()
}

// replayer fails where the cell cannot be believed.
func (c *Cell) replayer() (*replay.Replayer, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if m := c.Witness.Mismatches; len(m) > 0 {
		return nil, fmt.Errorf("the target is not what was asked for: %s", m[0])
	}
	return replay.New(c.Target)
}

func (s *Session) runJob(c *Cell, run *replay.Replayer, j *job) {
	s.finish(c, j, s.replay(c, run, j))
}

// replay brings back the evidence of a scenario, that of the control run
// included. A panic makes this one invalid and leaves the others alone: it would
// otherwise end the process, and with it everything that was seen.
func (s *Session) replay(c *Cell, run *replay.Replayer, j *job) (evidence *verdicts.Evidence) {
	defer func() {
		if p := recover(); p != nil {
			evidence = invalidEvidence(c, j, verdicts.BlameHarness, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	cell := c.Plan.Target.Cell.Name
	evidence = run.Replay(s.ctx, j.scenario, scenarios.Suffix(s.seed, cell, j.scenario.ID))
	if verdicts.Judge(j.scenario, evidence).Verdict == verdicts.Failed {
		evidence.Control = run.Replay(s.ctx, j.scenario, scenarios.Suffix(s.seed, cell, j.scenario.ID, "control"))
	}
	return evidence
}

// finish judges what will be stored: the evidence without credentials.
func (s *Session) finish(c *Cell, j *job, evidence *verdicts.Evidence) {
	if clean, err := reports.RedactEvidence(evidence); err == nil {
		evidence = clean
	} else {
		evidence = invalidEvidence(c, j, verdicts.BlameHarness, fmt.Errorf("redacting the evidence: %w", err))
	}
	j.evidence = evidence
	j.result = verdicts.Judge(j.scenario, evidence)
	close(j.done)
	if s.usageError() != nil {
		return // what was not run for that is no news
	}
	s.events(Event{Result: &j.result, Took: max(0, evidence.Ended.Sub(evidence.Started)-j.scenario.Waits())})
}

// invalidEvidence stands for a scenario that could not be run at all.
func invalidEvidence(c *Cell, j *job, blame verdicts.Blame, err error) *verdicts.Evidence {
	return &verdicts.Evidence{
		Scenario: j.scenario.ID, Digest: j.scenario.Digest, Cell: c.Plan.Target.Cell,
		Problems: []verdicts.Problem{{Blame: blame, Text: err.Error()}},
	}
}
