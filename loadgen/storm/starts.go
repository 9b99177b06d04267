package storm

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// beginStart prepares block i. If it is the first of a start, it ends all servers except those that have just started,
// starts them again, and warms all of them up. It reports whether to go on.
func (r *runner) beginStart(ctx context.Context, i int) bool {
	start := r.plan[i].start
	if i > 0 && r.plan[i-1].start == start {
		return true
	}
	// They start in a random order, because what a process is like may depend on which came before.
	names := r.Profile.Servers()
	random := rand.New(rand.NewPCG(uint64(r.Seed), uint64(start)))
	random.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
	if i > 0 {
		r.Say("starting the servers anew")
		for _, name := range names {
			if err := r.renew(ctx, r.servers[name]); err != nil {
				r.problem(-1, "start %d of %d: %v", start+1, r.Profile.Starts, err)
				return false
			}
		}
		clear(r.last) // they know nobody
	}
	if r.Profile.Counts {
		return true
	}
	for _, name := range names {
		if err := r.warmUp(ctx, r.servers[name], start); err != nil {
			r.problem(-1, "warming up %s: %v", name, err)
			return false
		}
	}
	r.noteHeld()
	return true
}

// renew starts a server anew, as it was, and waits until it answers as variants expect.
func (r *runner) renew(ctx context.Context, s *controlPlane) error {
	r.count(s, time.Now(), false) // what asks now are not agents
	if err := s.restart(ctx); err != nil {
		return err
	}
	var err error
	if s.history, err = population.NewHistory(r.Profile, s.name, r.Release.Version); err != nil {
		return err
	}
	for _, t := range s.targets {
		r.mismatches(-1, s.name, t.Witness.Mismatches)
		if err := s.population.Settle(ctx, t.Anonymous(), r.Profile, s.name); err != nil {
			return err
		}
	}
	return nil
}

// warmUp opens the connections to a server again, and has the agents of its first side ask it as themselves, so that
// nothing is remembered of impersonation. It discards the results.
func (r *runner) warmUp(ctx context.Context, s *controlPlane, start int) error {
	i := slices.IndexFunc(r.plan, func(p plannedBlock) bool { return p.side.Server == s.name })
	side := profile.Side{Variant: r.plan[i].side.Variant, Server: s.name}
	r.count(s, time.Now(), true)
	o := shard.Order{Side: side, Seed: r.plan[i].seed + uint64(start), WarmUp: true}
	err := s.generator.Prepare(ctx, o)
	if err == nil {
		o.Start = s.generator.Start()
		_, err = s.generator.Block(ctx, o)
	}
	r.out.WarmUps++
	return cmp.Or(err, ctx.Err())
}
