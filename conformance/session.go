package conformance

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Output is where cells put what they observe.
type Output struct {
	// Seed makes names unique. The same seed gives the same names.
	Seed int64
	Log  *record.Log
	// Observer is told of the progress. Functions that are nil are not called.
	Observer product.Observer
}

func (o *Output) say(format string, args ...any) {
	if o.Observer.Say != nil {
		o.Observer.Say(fmt.Sprintf(format, args...))
	}
}

func (o *Output) done(id string) {
	if o.Observer.Done != nil {
		o.Observer.Done(id)
	}
}

// Session runs a plan: some cells at once, on each cell one scenario after the other, with those that wait beside them.
type Session struct {
	Cells []*Cell // in the order of the plan
	// Parallel is how many cells run at once. Each has its target only while it runs; then the next cell takes its
	// place. 0 is all cells, with targets that live until Stop.
	Parallel int

	output *Output

	start    sync.Once
	startErr error
	ctx      context.Context // ends with Start's, with Stop, and on a usage error
	end      context.CancelCauseFunc
	workers  sync.WaitGroup
	memory   memoryWatch
	// unfinished are the cells that have still something to run that needs no kubectl of a late cell; building is held by
	// who looks for kubectls then.
	unfinished sync.WaitGroup
	building   sync.Mutex

	mu    sync.Mutex
	usage error // of the first cell that has one
	// processorTime is that of the programs of targets that were stopped, by name.
	processorTime map[string]time.Duration
	began         time.Time
}

// New prepares a session.
func New(plan []CellPlan, o Output) *Session {
	s := &Session{output: &o, began: time.Now()}
	done := o.Observer.Done
	s.output.Observer.Done = func(id string) {
		isNews := s.usageError() == nil // What was not run for a usage error is not.
		if isNews && done != nil {
			done(id)
		}
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	for _, p := range plan {
		// Garbage that is collected late costs memory, and saves a tenth of a kube-apiserver's processor time.
		p.Target.KubeAPIServerEnv = append([]string{"GOGC=400"}, p.Target.KubeAPIServerEnv...)
		s.Cells = append(s.Cells, NewCell(p, s.output))
	}
	return s
}

// runCell runs the scenarios of a cell: those that wait side by side from the start, the others in order, and those that need
// the target for themselves at the end, for all others have to be done before. What waits for a kubectl comes after that.
func (s *Session) runCell(c *Cell) {
	start := time.Now()
	run, err := c.newReplayer()
	defer func() { c.Finish(start, err) }()
	finished := sync.OnceFunc(s.unfinished.Done)
	defer finished()
	if err != nil {
		return
	}
	s.runAgents(c)
	var wg sync.WaitGroup
	var quick, separate, late []*scenarios.Scenario
	for _, scenario := range c.Plan.Runs() {
		switch {
		case c.isKubectlLate && scenario.RunsKubectl():
			late = append(late, scenario)
		case scenario.Waits() > 0:
			wg.Go(func() { c.Run(s.ctx, run, scenario, nil) })
		case scenario.Alone():
			separate = append(separate, scenario)
		default:
			quick = append(quick, scenario)
		}
	}
	s.runInOrder(c, run, slices.Concat(quick, separate))
	wg.Wait()
	finished()
	if len(late) > 0 {
		s.runLate(c, run, late)
	}
	c.keepLogs(s.ctx)
	if s.ctx.Err() == nil {
		c.Err = c.Target.UnknownFamilies(s.ctx)
	}
}

// runInOrder sends the requests of one scenario after those of the other. What the next ones need is made meanwhile.
func (s *Session) runInOrder(c *Cell, run *replay.Replayer, list []*scenarios.Scenario) {
	for next := range c.prepareAhead(s.ctx, run, list) {
		c.send(s.ctx, run, <-next)
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

	output   *Output
	recorded checker
	jobs     map[string]*job // by scenario
	finished chan struct{}   // closed when everything is recorded
	// isKubectlLate is set if the scenarios that run kubectl come after all others, because kubectl has to be built first.
	isKubectlLate bool
	// hasFailed is set once a scenario has failed or could not be judged.
	hasFailed atomic.Bool
}

type job struct {
	scenario *scenarios.Scenario
	done     chan struct{} // closed when the evidence is recorded
	recorded bool
}

// NewCell prepares a cell.
func NewCell(p CellPlan, o *Output) *Cell {
	c := &Cell{Plan: p, output: o, jobs: map[string]*job{}, finished: make(chan struct{})}
	for _, s := range p.Runs() {
		c.jobs[s.ID] = &job{scenario: s, done: make(chan struct{})}
	}
	return c
}

// Name is that of the cell.
func (c *Cell) Name() string { return c.Plan.Target.Cell.Name }

// Result waits for the evidence of a scenario on the cell, and judges it.
func (c *Cell) Result(ctx context.Context, id string) (reports.Result, error) {
	j := c.jobs[id]
	select {
	case <-j.done:
		return JudgeScenario(j.scenario, c.Plan.Target.Cell, c.output.Log.View()), nil
	case <-ctx.Done():
		return reports.Result{}, ctx.Err()
	}
}

// Results waits until everything that runs on the cell is recorded, and judges the scenarios in the order of the plan.
func (c *Cell) Results() (results []reports.Result) {
	<-c.finished
	for _, s := range c.Plan.Runs() {
		results = append(results, JudgeScenario(s, c.Plan.Target.Cell, c.output.Log.View()))
	}
	return results
}

func (c *Cell) newReplayer() (*replay.Replayer, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	return replay.New(c.Target)
}

// Run replays a scenario of the cell and records what was seen. kept, if given, is what the scenario has already.
func (c *Cell) Run(ctx context.Context, run *replay.Replayer, s *scenarios.Scenario, kept *replay.KeptSetup) {
	j := c.jobs[s.ID]
	c.keep(j, c.replay(ctx, run, j, func() *verdicts.Evidence {
		if kept != nil {
			return run.ReplayKept(ctx, s, kept)
		}
		return run.Replay(ctx, s, c.suffix(j))
	}))
}

// suffix makes the names of a scenario unique.
func (c *Cell) suffix(j *job) string {
	return scenarios.Suffix(c.output.Seed, c.Name(), j.scenario.ID)
}

// replay returns the evidence of a scenario. One that fails is replayed once more under fresh names: this control run
// shows whether what was there before is to blame.
func (c *Cell) replay(ctx context.Context, run *replay.Replayer, j *job, observe func() *verdicts.Evidence) *verdicts.Evidence {
	return c.survivePanic(j, func() *verdicts.Evidence {
		evidence := observe()
		// What was asked for 15 seconds is not asked once more.
		if verdicts.Judge(j.scenario, evidence).Verdict == verdicts.Failed && evidence.UnappliedGrant == nil {
			evidence.Control = run.Replay(ctx, j.scenario, scenarios.Suffix(c.output.Seed, c.Name(), j.scenario.ID, "control"))
		}
		return evidence
	})
}

// survivePanic returns the evidence that observe returns. A panic makes this scenario invalid and leaves the others alone: it
// would otherwise end the process, and with it everything that was seen.
func (c *Cell) survivePanic(j *job, observe func() *verdicts.Evidence) (evidence *verdicts.Evidence) {
	defer func() {
		if p := recover(); p != nil {
			evidence = c.brokenEvidence(j, verdicts.BlameHarness, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	return observe()
}

// Finish ends the cell, on which scenarios have run since a time. What was not run is invalid for the reason in err.
func (c *Cell) Finish(since time.Time, err error) {
	for _, s := range c.Plan.Runs() {
		if j := c.jobs[s.ID]; !j.recorded {
			c.keep(j, c.brokenEvidence(j, verdicts.BlameEnvironment, err))
		}
	}
	if c.Plan.NeedsAgents() && !c.output.Log.View().Has(agentsKey(c.Name())) {
		c.keepAgents(&nodes.Observation{Problem: fmt.Sprint(err)})
	}
	cellRecord := CellRecord{Witness: c.Witness, ReadySeconds: c.Ready.Seconds(), WallSeconds: time.Since(since).Seconds()}
	if c.Err != nil {
		cellRecord.Problem = c.Err.Error()
	}
	if err := c.output.Log.Append(cellKey(c.Name()), cellRecord); err != nil {
		c.output.say("%s: %v", c.Name(), err)
	}
	close(c.finished)
}

// keep records the evidence of a scenario.
func (c *Cell) keep(j *job, evidence *verdicts.Evidence) {
	if fault := c.recorded.check(j.scenario, evidence); fault != "" {
		evidence.Problems = append(evidence.Problems, verdicts.Problem{Blame: verdicts.BlameHarness, Text: fault})
	}
	if verdict := verdicts.Judge(j.scenario, evidence).Verdict; verdict == verdicts.Failed || verdict == verdicts.Invalid {
		c.hasFailed.Store(true)
	}
	key := evidenceKey(c.Name(), j.scenario.ID)
	err := c.output.Log.Append(key, evidence)
	if err != nil {
		err = c.output.Log.Append(key, c.brokenEvidence(j, verdicts.BlameHarness, err))
	}
	if err != nil {
		c.output.say("%s: %v", c.Name(), err)
	}
	j.recorded = true
	close(j.done)
	c.output.done(key)
}

func (c *Cell) brokenEvidence(j *job, blame verdicts.Blame, err error) *verdicts.Evidence {
	return &verdicts.Evidence{
		Scenario: j.scenario.ID, Digest: j.scenario.Digest, Cell: c.Plan.Target.Cell,
		Problems: []verdicts.Problem{{Blame: blame, Text: err.Error()}},
	}
}

// runAgents lets the node agents work first: a DaemonSet would wait for scenarios' Nodes, where no kubelet runs its pods.
func (s *Session) runAgents(c *Cell) {
	if !c.Plan.NeedsAgents() {
		return
	}
	c.keepAgents(nodes.Run(s.ctx, c.Target, nodes.Suffix(s.output.Seed, c.Name())))
}

// keepAgents records what was seen of the node agents.
func (c *Cell) keepAgents(o *nodes.Observation) {
	if err := c.output.Log.Append(agentsKey(c.Name()), o); err != nil {
		c.output.say("%s: %v", c.Name(), err)
	}
	for _, item := range c.Plan.Agents {
		if item.Fate == Run {
			c.output.done(c.Name() + "/" + item.name())
		}
	}
}
