package conformance

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Event is progress that a person may want to see.
type Event struct {
	Text   string           // set for a step of the run as a whole, such as a target being ready
	Result *verdicts.Result // set when a scenario has its verdict
	Took   time.Duration    // how long the scenario ran, waits apart
}

// Session runs a plan: some cells at once, on each cell one scenario after the other, with those that wait beside them.
type Session struct {
	Cells []*Cell // in the order of the plan
	// Parallel is how many cells run at once. Each has its target only while it runs; then the next cell takes its
	// place. 0 is all cells, with targets that live until Stop.
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

// New prepares a session. events may be called from several goroutines.
func New(plan []CellPlan, seed int64, events func(Event)) *Session {
	s := &Session{seed: seed}
	s.events = func(e Event) {
		if e.Result == nil || s.usageError() == nil { // what was not run for a usage error is not news
			events(e)
		}
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	for _, p := range plan {
		// Requests are sent one at a time: HTTP/2 shares a connection for nothing, and late garbage collection costs little.
		p.Target.Recorder.HTTP1 = true
		p.Target.KubeAPIServerEnv = append([]string{"GOGC=200"}, p.Target.KubeAPIServerEnv...)
		s.Cells = append(s.Cells, NewCell(p))
	}
	return s
}

// runCell runs the scenarios of a cell: those that wait side by side from the start, the others in order.
func (s *Session) runCell(c *Cell) {
	start := time.Now()
	run, err := c.replayer()
	defer func() { c.Finish(start, err, s.events) }()
	if err != nil {
		return
	}
	s.runAgents(c)
	var wg sync.WaitGroup
	var quick []*scenarios.Scenario
	for _, one := range c.Plan.Runs() {
		if one.Waits() > 0 {
			wg.Go(func() { c.Run(s.ctx, run, one, nil, s.seed, s.events) })
		} else {
			quick = append(quick, one)
		}
	}
	for _, one := range quick {
		c.Run(s.ctx, run, one, nil, s.seed, s.events)
	}
	wg.Wait()
	if s.ctx.Err() == nil {
		c.Err = c.Target.UnknownFamilies(s.ctx)
	}
}

// Cell is one target and what was seen on it: a cell of a matrix, or a stage of an upgrade path.
type Cell struct {
	Plan CellPlan
	// Target is nil unless the cell is running. Err says why it did not start, or what broke.
	Target  *server.Server
	Err     error
	Witness reports.Witness // what the target said of itself
	Ready   time.Duration   // how long the target took to start
	Took    time.Duration   // how long the scenarios took, waits included
	Agents  *reports.Agents // what the node agents were allowed, where the cell has nodes

	jobs     map[string]*job // by scenario
	finished chan struct{}   // closed when everything has its verdict, and Took is set
}

type job struct {
	scenario *scenarios.Scenario
	done     chan struct{}
	evidence *verdicts.Evidence
	result   verdicts.Result
}

// NewCell prepares a cell.
func NewCell(p CellPlan) *Cell {
	c := &Cell{Plan: p, jobs: map[string]*job{}, finished: make(chan struct{})}
	for _, s := range p.Runs() {
		c.jobs[s.ID] = &job{scenario: s, done: make(chan struct{})}
	}
	return c
}

// Only leaves out the scenarios that were not chosen. It is for what has not begun yet.
func (c *Cell) Only(chosen func(cell, scenario string) bool, why string) {
	for i := range c.Plan.Items {
		item := &c.Plan.Items[i]
		if id := item.Scenario.ID; item.Fate == Run && !chosen(c.Plan.Target.Cell.Name, id) {
			item.Fate, item.Why = LeftOut, why
			delete(c.jobs, id)
		}
	}
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

// Outcomes waits for everything that runs on the cell, and returns it in the order of the plan.
func (c *Cell) Outcomes() (evidence []*verdicts.Evidence, results []verdicts.Result) {
	<-c.finished
	for _, s := range c.Plan.Runs() {
		j := c.jobs[s.ID]
		evidence, results = append(evidence, j.evidence), append(results, j.result)
	}
	return evidence, results
}

// Report waits for everything that runs on the cell, and turns it into its part of a report.
func (c *Cell) Report() (reports.Cell, []*verdicts.Evidence) {
	evidence, results := c.Outcomes()
	cell := reports.Cell{
		Cell: c.Plan.Target.Cell, Facts: server.ExpectedFacts(c.Plan.Target), Witness: c.Witness,
		ReadySeconds: c.Ready.Seconds(), WallSeconds: c.Took.Seconds(), Results: results, Agents: c.Agents,
	}
	if c.Err != nil {
		cell.Problem = c.Err.Error()
	}
	c.Plan.NotRun(&cell)
	return cell, evidence
}

// NotRun adds to a cell of a report what the plan does not run there, and why.
func (p CellPlan) NotRun(cell *reports.Cell) {
	for _, item := range p.Items {
		switch item.Fate {
		case Run:
		case Unsupported:
			cell.Results = append(cell.Results, verdicts.Result{
				Scenario: item.Scenario.ID, Level: item.Scenario.Level, Cell: cell.Name,
				Verdict: verdicts.NotSupported, Reason: item.Why,
			})
		default:
			cell.NotRun = append(cell.NotRun, reports.NotRun{Scenario: item.Scenario.ID, Why: item.Why, Cause: causes[item.Fate]})
		}
	}
}

// causes are the words of a report for why a scenario was not run.
var causes = map[Fate]reports.NotRunCause{NotSelected: reports.CauseTarget, LeftOut: reports.CauseUser, NotMade: reports.CausePath}

func (c *Cell) replayer() (*replay.Replayer, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	return replay.New(c.Target)
}

// Run replays a scenario of the cell and judges it. kept, if given, is what the scenario has already.
func (c *Cell) Run(ctx context.Context, run *replay.Replayer, s *scenarios.Scenario, kept *replay.Kept, seed int64, events func(Event)) {
	j := c.jobs[s.ID]
	c.finish(j, c.replay(ctx, run, j, kept, seed), events)
}

// replay brings back the evidence of a scenario. One that fails is replayed once more under fresh names: that tells
// whether what was there before is to blame. A panic makes this one invalid and leaves the others alone: it would
// otherwise end the process, and with it everything that was seen.
func (c *Cell) replay(ctx context.Context, run *replay.Replayer, j *job, kept *replay.Kept, seed int64) (evidence *verdicts.Evidence) {
	defer func() {
		if p := recover(); p != nil {
			evidence = invalidEvidence(c, j, verdicts.BlameHarness, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	cell, id := c.Plan.Target.Cell.Name, j.scenario.ID
	if kept != nil {
		evidence = run.ReplayKept(ctx, j.scenario, kept)
	} else {
		evidence = run.Replay(ctx, j.scenario, scenarios.Suffix(seed, cell, id))
	}
	// What was asked for 15 seconds is not asked once more.
	if verdicts.Judge(j.scenario, evidence).Verdict == verdicts.Failed && evidence.Unheeded == nil {
		evidence.Control = run.Replay(ctx, j.scenario, scenarios.Suffix(seed, cell, id, "control"))
	}
	return evidence
}

// Finish ends the cell, on which scenarios have run since a time. What has no verdict is invalid for the reason in err.
func (c *Cell) Finish(since time.Time, err error, events func(Event)) {
	for _, s := range c.Plan.Runs() {
		if j := c.jobs[s.ID]; j.evidence == nil {
			c.finish(j, invalidEvidence(c, j, verdicts.BlameEnvironment, err), events)
		}
	}
	c.Took = time.Since(since)
	close(c.finished)
}

// finish judges what will be stored: the evidence without credentials.
func (c *Cell) finish(j *job, evidence *verdicts.Evidence, events func(Event)) {
	if clean, err := reports.RedactEvidence(evidence); err == nil {
		evidence = clean
	} else {
		evidence = invalidEvidence(c, j, verdicts.BlameHarness, fmt.Errorf("redacting the evidence: %w", err))
	}
	j.evidence = evidence
	j.result = verdicts.Judge(j.scenario, evidence)
	close(j.done)
	events(Event{Result: &j.result, Took: max(0, evidence.Ended.Sub(evidence.Started)-j.scenario.Waits())})
}

func invalidEvidence(c *Cell, j *job, blame verdicts.Blame, err error) *verdicts.Evidence {
	return &verdicts.Evidence{
		Scenario: j.scenario.ID, Digest: j.scenario.Digest, Cell: c.Plan.Target.Cell,
		Problems: []verdicts.Problem{{Blame: blame, Text: err.Error()}},
	}
}

// NeedsNodes says whether a scenario of the cell is about pods on real nodes.
func (p CellPlan) NeedsNodes() bool {
	return slices.ContainsFunc(p.Runs(), func(s *scenarios.Scenario) bool { return slices.Contains(s.Needs(), scenarios.KubeletNodes) })
}

// NeedsAgents says whether node agents work on the cell, too. They are about the constrained modes: with the gate off
// there is nothing to be seen that scenarios do not show.
func (p CellPlan) NeedsAgents() bool {
	return p.NeedsNodes() && server.ExpectedFacts(p.Target).Gate == scenarios.GateOn
}

// runAgents lets the node agents work first: a DaemonSet would wait for scenarios' Nodes, where no kubelet runs its pods.
func (s *Session) runAgents(c *Cell) {
	if !c.Plan.NeedsAgents() {
		return
	}
	name := c.Plan.Target.Cell.Name
	c.Agents = nodes.Run(s.ctx, c.Target, nodes.Suffix(s.seed, name))
	s.events(Event{Text: fmt.Sprintf("%s: node agents: %d checks, %d failed", name, len(c.Agents.Checks), len(c.Agents.Failed()))})
}
