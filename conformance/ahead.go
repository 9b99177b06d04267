package conformance

import (
	"context"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// preparedAhead is how many scenarios of a cell are prepared while the requests of another are sent. Their names are unique, so
// they do not meet. Most of the time of a scenario passes until its grants are in force, which costs no processor time.
const preparedAhead = 8

// preparation is a scenario that has what its requests need, or the evidence of why it has not.
type preparation struct {
	job      *job
	prepared *replay.PreparedScenario
	broken   *verdicts.Evidence
}

// prepareAhead prepares scenarios, some of them at once, and hands them out in their order. Each has to be sent.
func (c *Cell) prepareAhead(ctx context.Context, run *replay.Replayer, list []*scenarios.Scenario) <-chan (<-chan preparation) {
	queue := make(chan (<-chan preparation), preparedAhead)
	go func() {
		defer close(queue)
		for _, scenario := range list {
			ready := make(chan preparation, 1)
			queue <- ready // waits until one of those before it is taken
			go func() { ready <- c.prepare(ctx, run, c.jobs[scenario.ID]) }()
		}
	}()
	return queue
}

func (c *Cell) prepare(ctx context.Context, run *replay.Replayer, j *job) preparation {
	p := preparation{job: j}
	p.broken = c.survivePanic(j, func() *verdicts.Evidence {
		p.prepared = run.Prepare(ctx, j.scenario, c.suffix(j))
		return nil
	})
	return p
}

// send sends the requests of a prepared scenario and records what was seen.
func (c *Cell) send(ctx context.Context, run *replay.Replayer, p preparation) {
	if p.broken != nil {
		c.keep(p.job, p.broken)
		return
	}
	c.keep(p.job, c.replay(ctx, run, p.job, func() *verdicts.Evidence { return p.prepared.Send(ctx) }))
}
