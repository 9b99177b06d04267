package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

var scraped = []string{processStart, authorizationAttempts, webhookEvaluations, flowControl + "rejected_requests_total", flowControl + "dispatched_requests_total", flowControl + "request_wait_duration_seconds",
	decisions, "go_memstats_alloc_bytes_total", heapSys, "go_gc_duration_seconds", cpuSeconds}

// readTimeout bounds reading the metrics of a server that may be dying.
const readTimeout = 20 * time.Second

// block runs one block, and tells whether to go on.
func (r *runner) block(ctx context.Context, i int) bool {
	p := r.plan[i]
	s, variant := r.servers[p.side.Server], p.side.Does()
	sends := r.Profile.Plan(p.seed).Stripe(0, 1)
	if (variant.Cache == profile.Cold || r.Profile.FirstContact()) && !r.forget(ctx, p.side) {
		return false
	}
	before, err := s.read()
	if err != nil {
		r.problem(i, "before the block: %v", err)
		return false
	}
	self := os.Getpid()
	start := time.Now().Add(shard.Lead(r.Profile))
	counted := r.count(s, start, true)
	used := r.used(s)
	ownBefore, _ := shard.Used(self)
	stop := r.report(i, p, start, counted)
	over, profiled := r.event(ctx, i, s, start), r.profiles(ctx, i, s, start)
	b, err := s.generator.Block(ctx, shard.Order{Side: p.side, Seed: p.seed, Start: start})
	stop()
	eventErr, profiles := over(), profiled()
	r.last[p.side] = time.Now()
	if ctx.Err() != nil {
		r.problem(-1, "ended by the user in block %d of %d, which is left out", i+1, len(r.plan))
		return false
	}
	if err = errors.Join(err, eventErr); b == nil || eventErr != nil {
		r.problem(i, "%v", err)
		return false
	}
	b.Pair, b.Role, b.AA, b.Comparison = p.pair, p.role, p.comparison.AA(), p.comparison.Name
	b.Started, b.Agents = start.UTC(), r.Profile.Agents()
	b.Start, b.ServerStarted = p.start, before.began()
	b.Cost, b.Profiles = r.cost(s, used), profiles
	ownAfter, ownRSS := shard.Used(self)
	if r.Shards == 1 && r.Engine != Pods {
		b.GeneratorCPU = 0 // that of this process, which is all of it
	}
	b.GeneratorCPU += run.Duration(ownAfter - ownBefore)
	b.GeneratorRSS += ownRSS
	r.out.Blocks = append(r.out.Blocks, *b)
	return r.complete(i, s, p.side, before, counted, err) && r.predict(ctx, s, p, variant, start, sends)
}

// complete adds what authorizer and server say of a block, and whether the run can go on. lost is why a shard is gone.
func (r *runner) complete(i int, s *controlPlane, side profile.Side, before counters, counted func() tallies, lost error) bool {
	b := &r.out.Blocks[len(r.out.Blocks)-1]
	at := len(r.out.Blocks) - 1
	counted().fill(b, r.Profile.Authorizer.Cache)
	if lost != nil {
		r.problem(at, "%v", lost)
	} else {
		r.clocks(context.Background(), s.generator, at)
	}
	for _, text := range unaccepted(b) {
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
	if err := r.replaced(before, after); err != nil {
		r.problem(at, "%v", err)
		return false
	}
	increased := after.since(before)
	runtimeCost(b, increased, r.idle[s.name][run.APIServer].Idle)
	restarted := r.Profile.Event.Kind != profile.NoEvent
	metrics(b, increased, s.attempts && !r.Profile.Authorizer.Cache && !r.alone(), s.targets[0].Components(), restarted)
	if r.alone() {
		var fewer int64
		if b.Reviews, fewer = checked(b, increased, r.background[s.name]); fewer > 0 {
			r.uneven("in block %d the API server allowed %d checks fewer than while no agent asked", i+1, fewer)
		}
	}
	for _, text := range b.Unreconciled {
		r.problem(at, "block %d, %s on %s: %s", i+1, side.Variant, side.Server, text)
	}
	return lost == nil
}

// predict compares the reviews of the last block with the prediction for its requests. The first time that a side does
// something else, it looks for the smallest schedule that shows it.
func (r *runner) predict(ctx context.Context, s *controlPlane, p planned, variant profile.Variant, start time.Time, sends []pacer.Send) bool {
	at := len(r.out.Blocks) - 1
	b := &r.out.Blocks[at]
	if err := r.foretold(s, b, variant, start); err != nil {
		r.problem(at, "%v", err)
		return false
	}
	list, _ := b.Unpredicted()
	if len(list) == 0 || r.shrunk[p.side] || b.FollowsServer || r.Profile.SelfReviews > 0 || !r.Profile.OneServer() || r.Profile.Authorizer.Cache {
		return true
	}
	r.shrunk[p.side] = true
	r.Said(fmt.Sprintf("%s on %s: %s; looking for fewer requests that show it", p.side.Variant, p.side.Server, strings.Join(list, "; ")))
	text := ""
	smallest := population.Smallest(sends, tries, func(fewer []pacer.Send) bool {
		list, err := r.again(ctx, s, p, variant, fewer)
		if err != nil {
			r.problem(at, "looking for the smallest schedule: %v", err)
		}
		if len(list) > 0 {
			text = strings.Join(list, "; ")
		}
		r.Said(fmt.Sprintf("  %d of its %d requests: %s", len(fewer), len(sends), cmp.Or(strings.Join(list, "; "), "as predicted")))
		return len(list) > 0
	})
	text = cmp.Or(text, "with fewer requests it did not show again: "+strings.Join(list, "; "))
	b.Smallest = &run.Smallest{Count: len(smallest), Text: text}
	for _, send := range smallest[:min(len(smallest), shownRequests)] {
		b.Smallest.Requests = append(b.Smallest.Requests, population.Describe(r.Profile, variant, send))
	}
	return ctx.Err() == nil
}

// foretold predicts a block by its log, which is not needed any more.
func (r *runner) foretold(s *controlPlane, b *run.Block, variant profile.Variant, start time.Time) (err error) {
	if r.Profile.Predictable() {
		b.Predicted, err = s.history.Predict(variant, start, b.Log)
	}
	b.Log = nil
	return err
}

const (
	// tries is how many schedules are tried for the smallest: each takes as long as its requests, and the server to forget.
	tries         = 16
	shownRequests = 20
)

// again sends some of a block's requests when the server has forgotten the checks, and says what is not as predicted.
func (r *runner) again(ctx context.Context, s *controlPlane, p planned, variant profile.Variant, sends []pacer.Send) ([]string, error) {
	if !r.forget(ctx, p.side) {
		return nil, nil
	}
	start := time.Now().Add(shard.Lead(r.Profile))
	counted := r.count(s, start, true)
	b, err := s.generator.Block(ctx, shard.Order{Side: p.side, Seed: p.seed, Start: start, Sends: sends})
	r.last[p.side] = time.Now()
	if err != nil {
		return nil, err
	}
	counted().fill(b, r.Profile.Authorizer.Cache)
	if err := r.foretold(s, b, variant, start); err != nil {
		return nil, err
	}
	list, _ := b.Unpredicted()
	return list, nil
}

// unaccepted says which credentials a block did not accept: no variant means to be without, so it shows nothing.
func unaccepted(b *run.Block) (list []string) {
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

// report tells how a block is going until the function that it returns is called.
func (r *runner) report(i int, p planned, start time.Time, counted func() tallies) (stop func()) {
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
			Block: i + 1, Blocks: len(r.plan), Comparison: p.comparison.Name, Side: p.side,
			Elapsed: elapsed, Left: time.Duration(len(r.plan)-i)*r.Profile.Block - elapsed,
			Asked: plan.Expected(), Live: r.servers[p.side.Server].generator.Live(), Reviews: counted().total(),
		})
	}
	ended.Go(func() { wait.UntilWithContext(ctx, tell, progressEvery) })
	return func() { cancel(); ended.Wait() }
}

type planned struct {
	comparison profile.Comparison
	start      int // of the servers
	pair       int // numbered over all comparisons
	role       string
	side       profile.Side
	seed       uint64 // the same for both sides of a pair
}

// order is the order of all blocks. Pairs are spread over the starts of the servers. The sides of a pair follow each
// other, so that what drifts meets both alike; of two pairs of a comparison in a start one begins with A and one with
// B (ABBA), which of them is drawn; and comparisons take turns in an order that is drawn for each pair.
func order(p *profile.Profile, seed int64) (blocks []planned) {
	random := rand.New(rand.NewPCG(uint64(seed), 0x5704)) // another stream than the agents'
	firstB := make([]bool, len(p.Comparisons))
	start, within := -1, 0
	for pair := range p.Pairs {
		within++
		if s := pair * p.Starts / p.Pairs; s != start {
			start, within = s, 0
		}
		turns := random.Perm(len(p.Comparisons))
		for _, i := range turns {
			c := p.Comparisons[i]
			if within%2 == 0 {
				firstB[i] = random.IntN(2) == 1
			} else {
				firstB[i] = !firstB[i]
			}
			arrivals := uint64(seed)<<20 + uint64(pair)<<6 + uint64(i)
			number := pair*len(p.Comparisons) + i
			two := []planned{{c, start, number, "A", c.A, arrivals}, {c, start, number, "B", c.B, arrivals}}
			if firstB[i] {
				slices.Reverse(two)
			}
			blocks = append(blocks, two...)
		}
	}
	return blocks
}
