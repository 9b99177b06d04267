package storm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// readTimeout limits the time to read the metrics of a server that may be dying.
const readTimeout = 20 * time.Second

// block runs one block, and reports whether to go on.
func (r *runner) block(ctx context.Context, i int) bool {
	p := r.plan[i]
	s, variant := r.servers[p.side.Server], p.side.Does()
	cold := variant.Cache == profile.Cold || r.Profile.FirstContact()
	if cold && !r.forget(ctx, p.side) {
		return false
	}
	err := s.generator.Prepare(ctx, shard.Order{Side: p.side, Seed: p.seed})
	if ctx.Err() != nil {
		r.problem(-1, "ended by the user before block %d of %d", i+1, len(r.plan))
		return false
	}
	if err != nil {
		r.problem(i, "before the block: %v", err)
		return false
	}
	before, err := s.read()
	if err != nil {
		r.problem(i, "before the block: %v", err)
		return false
	}
	start := s.generator.Start()
	count := r.count(s, start, true)
	b, loss, err := r.send(ctx, i, s, start, count)
	if ctx.Err() != nil {
		r.problem(-1, "ended by the user in block %d of %d, which is left out", i+1, len(r.plan))
		return false
	}
	if err != nil {
		r.problem(i, "%v", err)
		return false
	}
	b.Pair, b.Uses = p.number, p.uses
	b.Started, b.Agents = start.UTC(), r.Profile.Agents()
	b.Start, b.ServerStarted = p.start, before.began()
	r.out.Blocks = append(r.out.Blocks, *b)
	sends := r.Profile.Plan(p.seed).Stripe(0, 1)
	return r.complete(i, s, p.side, before, count, loss) && r.predict(ctx, s, p, variant, start, sends)
}

// send has the agents send a block while the block's event happens to the server, and measures what it costs. loss says
// why a shard is gone that had a part of it. An error means that there is no block.
func (r *runner) send(ctx context.Context, i int, s *controlPlane, start time.Time, count func() tallies) (b *run.Block, loss, err error) {
	p, self, pressure := r.plan[i], os.Getpid(), readPressure()
	use := r.measureUse(s)
	ownBefore, _ := shard.Used(self)
	stop := r.report(i, p, start, count)
	awaitEvent, awaitProfiles := r.event(ctx, i, s, start), r.takeProfiles(ctx, i, s, start)
	b, loss = s.generator.Block(ctx, shard.Order{Side: p.side, Seed: p.seed, Start: start})
	stop()
	eventErr, profiles := awaitEvent(), awaitProfiles()
	r.last[p.side] = time.Now()
	if b == nil || eventErr != nil {
		return nil, nil, errors.Join(loss, eventErr)
	}
	b.Cost, b.Profiles = r.measureCost(s, use), profiles
	if !r.can().Foreign {
		b.Pressure = pressureSince(pressure)
	}
	ownAfter, ownRSS := shard.Used(self)
	if r.Shards == 1 && r.Engine != Pods {
		b.GeneratorCPU = 0 // that of this process, which includes everything else
	}
	b.GeneratorCPU += run.Duration(ownAfter - ownBefore)
	b.GeneratorRSS += ownRSS
	return b, loss, nil
}

// complete adds what authorizer and server report about a block, and whether the run can go on. loss says why a shard
// is gone.
func (r *runner) complete(i int, s *controlPlane, side profile.Side, before counters, count func() tallies, loss error) bool {
	b := &r.out.Blocks[len(r.out.Blocks)-1]
	at := len(r.out.Blocks) - 1
	if r.Profile.Settle > 0 && !r.serverCounts() {
		b.Settled = &run.SettledPart{After: run.Duration(r.Profile.Settle)}
	}
	count().fill(b, r.Profile.Authorizer.Cache)
	if loss != nil {
		r.problem(at, "%v", loss)
	} else {
		r.clocks(context.Background(), s.generator, at)
	}
	for _, text := range findUnaccepted(b) {
		r.problem(at, "block %d, %s on %s: %s", i+1, side.Variant, side.Server, text)
	}
	if err := s.err(); err != nil {
		r.problem(at, "block %d, %s on %s: %v", i+1, side.Variant, side.Server, err)
		return false
	}
	after, err := s.read()
	if err != nil {
		r.problem(at, "after the block: %v", err)
		return false
	}
	if err := r.checkReplaced(before, after); err != nil {
		r.problem(at, "%v", err)
		return false
	}
	increased := after.since(before)
	b.Served = countServed(increased)
	addRuntimeCost(b, increased, r.idle[s.name][run.APIServer].Idle)
	addMetrics(b, increased, counterFacts{
		attempts:   s.attempts && !r.Profile.Authorizer.Cache && !r.serverCounts(),
		components: s.targets[0].Components(), restarted: r.Profile.Event.Kind != profile.NoEvent,
	})
	if r.serverCounts() {
		var fewer int64
		if b.Reviews, fewer = countChecks(b, increased, r.background[s.name]); fewer > 0 {
			r.noteUneven("in block %d the API server allowed %d checks fewer than while no agent asked", i+1, fewer)
		}
		b.WebhookCalls = max(0, countWebhookCalls(increased)-r.webhookCalls[s.name])
	}
	for _, text := range b.Unreconciled {
		r.problem(at, "block %d, %s on %s: %s", i+1, side.Variant, side.Server, text)
	}
	return loss == nil
}

// findUnaccepted returns which credentials of a block were not accepted. No variant is meant to be without valid ones,
// so such a block shows nothing.
func findUnaccepted(b *run.Block) (list []string) {
	if n := b.Answers["401"] - b.Again["401"]; n > 0 {
		list = append(list, fmt.Sprintf("%d requests were answered 401: their tokens have expired, or what they are bound to is gone", n))
	}
	if n := b.Answers["tls"] - b.Again["tls"]; n > 0 {
		list = append(list, fmt.Sprintf("%d requests failed in TLS: a certificate has expired, or was changed", n))
	}
	return list
}

// forget waits until a server has forgotten what it learned in the last block of a side.
func (r *runner) forget(ctx context.Context, side profile.Side) bool {
	last, before := r.last[side]
	forgotten := !before || clusters.Pause(ctx, time.Until(last.Add(profile.CacheLife)))
	if !forgotten {
		r.problem(-1, "ended by the user between blocks")
	}
	return forgotten
}
