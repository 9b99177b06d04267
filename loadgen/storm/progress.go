package storm

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// Progress is how a run is going.
type Progress struct {
	// Block counts from 1, of Blocks.
	Block, Blocks int
	Side          profile.Side
	// Elapsed is the time since the block's start, and Left the time until the end of the last block.
	Elapsed, Left time.Duration
	Asked         float64 // how many requests were to be sent by now, on average
	Live          agent.Live
	Reviews       int64
}

const progressEvery = time.Second

// report reports how a block is going until the returned function is called.
func (r *runner) report(i int, p plannedBlock, start time.Time, count func() tallies) (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	tell := func(context.Context) {
		elapsed := min(max(time.Since(start), 0), r.Profile.Block)
		plan := r.Profile.Plan(p.seed)
		if plan.Length = elapsed; elapsed <= 0 {
			return
		}
		r.Progress(Progress{
			Block: i + 1, Blocks: len(r.plan), Side: p.side,
			Elapsed: elapsed, Left: time.Duration(len(r.plan)-i)*r.Profile.Block - elapsed,
			Asked: plan.Expected(), Live: r.servers[p.side.Server].generator.Live(), Reviews: count().total(),
		})
	}
	ended.Go(func() { wait.UntilWithContext(ctx, tell, progressEvery) })
	return func() { cancel(); ended.Wait() }
}
