// Package shard runs the agents of a storm: in this process, in several, or in the pods of Indexed Jobs. Each shard has
// its stripe of the agents, and what shards count merges to exactly what one would have counted. Shards open their
// connections first, and then all of them start at the same time.
package shard

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/pacer"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// Job is what a shard has to know. It contains tokens, so it is sent through a pipe or in Secrets, and must not be
// printed.
type Job struct {
	Index, Count int
	Profile      profile.Profile
	Servers      map[profile.Server]Endpoint
	Tokens       map[string][][]string // the tokens of each identity, by the variant's name
}

// Endpoint says where a server is, and whose certificates it has.
type Endpoint struct {
	// Hosts are the addresses of a server's API servers, https://HOST:PORT. There is at least one. Shards use them in
	// turn.
	Hosts []string
	CA    []byte
}

// hostOf returns the API server that a shard sends to.
func (e Endpoint) hostOf(shard int) string { return e.Hosts[shard%len(e.Hosts)] }

// Order is a block to run.
type Order struct {
	Side  profile.Side
	Seed  uint64
	Start time.Time // time 0 of the block
	// WarmUp has the connections to the server opened anew, and the agents ask as themselves for a while.
	WarmUp bool
	Sends  []pacer.Send // sent instead of the block's schedule, if there are any
}

// Generator runs blocks, one at a time.
type Generator interface {
	// Prepare prepares what sends a block, so that this does not count for the block. The block of the same order has
	// to follow.
	Prepare(ctx context.Context, o Order) error
	// Start returns when the block begins that was prepared, if it is ordered now.
	Start() time.Time
	// Block returns what the agents counted. With an error it returns what there is of the block, or nil.
	Block(ctx context.Context, o Order) (*run.Block, error)
	// Live returns how the block is going.
	Live() agent.Live
	// Clocks returns the clocks of other processes, with an error if one is off (see Judge).
	Clocks(ctx context.Context) ([]run.Clock, error)
	Close() error
}

// countedRoom is how many requests of a shard are open at most if only counts matter. It is far more than is needed for
// checks to meet, and not so many that an API server on a busy machine gives up those that wait for long.
const countedRoom = 500

// lead returns how long before its start a block is ordered, because a schedule has to be made first.
func lead(p *profile.Profile) time.Duration {
	return 200*time.Millisecond + time.Duration(p.Plan(0).Expected())*2*time.Microsecond
}

// Worker is one shard.
type Worker struct {
	job   Job
	pools map[profile.Server]*agent.Pool

	mu    sync.Mutex
	storm *agent.Storm // that is running
}

// NewWorker prepares a shard.
func NewWorker(j Job) (*Worker, error) {
	w := &Worker{job: j, pools: map[profile.Server]*agent.Pool{}}
	connections := 0
	for name, server := range j.Servers {
		pool, err := agent.NewPool(&rest.Config{Host: server.hostOf(j.Index), TLSClientConfig: rest.TLSClientConfig{CAData: server.CA}},
			j.Profile.Agents(), j.Profile.AgentsPerConnection, j.Index, j.Count)
		if err != nil {
			return nil, err
		}
		w.pools[name] = pool
		connections += pool.Len()
	}
	return w, agent.CheckFiles(connections)
}

// Open opens all connections.
func (w *Worker) Open(ctx context.Context) error {
	for name, pool := range w.pools {
		if err := pool.Open(ctx); err != nil {
			return fmt.Errorf("connecting to %s: %w", name, err)
		}
	}
	return nil
}

// Close closes the connections.
func (w *Worker) Close() error {
	for _, pool := range w.pools {
		pool.Close()
	}
	return nil
}

// Prepare implements Generator. It has nothing to do, because the connections are open.
func (w *Worker) Prepare(context.Context, Order) error { return nil }

// Start implements Generator.
func (w *Worker) Start() time.Time { return time.Now().Add(lead(&w.job.Profile)) }

// Clocks implements Generator. The shard's clock is this process's.
func (w *Worker) Clocks(context.Context) ([]run.Clock, error) { return nil, nil }

// Live implements Generator.
func (w *Worker) Live() agent.Live {
	w.mu.Lock()
	storm := w.storm
	w.mu.Unlock()
	if storm == nil {
		return agent.Live{Latency: histogram.Histogram{}}
	}
	return storm.Live()
}

// Block implements Generator.
func (w *Worker) Block(ctx context.Context, o Order) (*run.Block, error) {
	variant, pool := o.Side.Does(), w.pools[o.Side.Server]
	if pool == nil {
		return nil, fmt.Errorf("there is no server %s", o.Side.Server)
	}
	p, tokens := &w.job.Profile, w.job.Tokens[variant.Name]
	plan := p.Plan(o.Seed)
	if o.WarmUp {
		pool.Close()
		if err := pool.Open(ctx); err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", o.Side.Server, err)
		}
		variant.As, variant.Denied, plan.Length = profile.Nobody, false, p.WarmUp()
		if soon := time.Now().Add(lead(p)); o.Start.Before(soon) {
			o.Start = soon
		}
	}
	storm := &agent.Storm{
		Pool: pool, Plan: plan, Shard: w.job.Index, Shards: w.job.Count,
		// It uses this process's monotonic clock, because a time from another process has only a wall clock.
		Start:   time.Now().Add(time.Until(o.Start)),
		Kinds:   profile.Kinds(),
		Request: population.Asker(p, variant, func(identity int) []string { return tokens[identity] }),
		Expect:  population.Expected(variant), Tolerance: p.LateTolerance, Timeout: p.Timeout, Reconnect: p.Reconnect,
		Return: p.Reflectors, WatchList: p.WatchList,
	}
	if p.Counts {
		storm.Room, storm.Patient = countedRoom, true
	}
	storm.Before.Kind, storm.Before.Times = slices.Index(storm.Kinds, profile.Review), p.SelfReviews
	schedule, err := storm.Prepare()
	if err != nil {
		return nil, err
	}
	if o.Sends != nil {
		schedule = slices.DeleteFunc(slices.Clone(o.Sends), func(s pacer.Send) bool { return int(s.Agent)%w.job.Count != w.job.Index })
		storm.Plan.Length = o.Sends[len(o.Sends)-1].At + time.Second
	}
	w.mu.Lock()
	w.storm = storm
	w.mu.Unlock()
	self := os.Getpid()
	before, _ := Used(self)
	b := storm.Run(ctx, schedule)
	after, _ := Used(self)
	b.GeneratorCPU = run.Duration(after - before)
	b.Variant, b.Server = variant.Name, string(o.Side.Server)
	return b, nil
}

// Used returns the processor time that a process has used so far, user and system, to 10 ms, and its resident memory in
// bytes. They are 0 if the kernel does not report them in /proc.
func Used(pid int) (cpu time.Duration, rss int64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, 0
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)).Round(time.Millisecond), int64(stat.ResidentMemory())
}
