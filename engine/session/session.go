package session

import (
	"context"
	"sync"
	"time"

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
		// Requests are sent one at a time: HTTP/2 has nothing to share a connection between, and memory that is
		// collected late costs little.
		p.Target.Recorder.HTTP1 = true
		p.Target.KubeAPIServerEnv = append([]string{"GOGC=200"}, p.Target.KubeAPIServerEnv...)
		s.Cells = append(s.Cells, NewCell(p))
	}
	return s
}

// runCell runs the scenarios of a cell: the waiting ones side by side from the start, for they mostly sleep, the
// others in order.
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
