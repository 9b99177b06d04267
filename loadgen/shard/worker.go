// Package shard runs the agents of a storm, in this process or in several: each shard has its stripe of the
// agents, and what shards count merges to exactly what one would have counted. Shards open their connections
// first; then all get the same time to start at.
package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

// Job is what a shard has to know. It holds tokens: it goes through a pipe, and is not for printing.
type Job struct {
	Index, Count int
	Profile      profile.Profile
	Servers      map[profile.Server]Endpoint
	Tokens       map[string][][]string // those of each identity, by the variant's name
}

// Endpoint is where a server is, and whose certificates it has.
type Endpoint struct {
	Host string
	CA   []byte
}

// Order is a block to run.
type Order struct {
	Side  profile.Side
	Seed  uint64
	Start time.Time // time 0 of the block
	// WarmUp has the connections to the server opened anew, and the agents ask as themselves for a while.
	WarmUp bool
	Sends  []pacer.Send // sent in place of the block's schedule, if there are any
}

// Generator runs blocks, one at a time.
type Generator interface {
	// Block returns what the agents counted. With an error the block is what there is of it, or nil.
	Block(ctx context.Context, o Order) (*run.Block, error)
	// Live is how the block is going.
	Live() agent.Live
	// Clocks are those of other processes, with an error if one is off; see Judge.
	Clocks(ctx context.Context) ([]run.Clock, error)
	Close() error
}

// countedRoom is how many requests of a shard are under way at most where only counts matter: far more than it takes for checks
// to meet, and not so many that an API server on a busy machine gives up what waits for long.
const countedRoom = 500

// Lead is how long before its start a block is ordered: a schedule has to be made first.
func Lead(p *profile.Profile) time.Duration {
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
		pool, err := agent.NewPool(&rest.Config{Host: server.Host, TLSClientConfig: rest.TLSClientConfig{CAData: server.CA}},
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

// Clocks implements Generator: its clock is this process's.
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
		if soon := time.Now().Add(Lead(p)); o.Start.Before(soon) {
			o.Start = soon
		}
	}
	storm := &agent.Storm{
		Pool: pool, Plan: plan, Shard: w.job.Index, Shards: w.job.Count,
		// By this process's monotonic clock: a time from another process has only a wall clock.
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

// Used is the processor time that a process has used so far, user and system, to 10 ms, and its resident memory in
// bytes; 0 where the kernel does not say it in /proc.
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

// IndexVariable is where an Indexed Job says which of its pods this is (k8s.io/api/batch/v1, CompletionMode).
const IndexVariable = "JOB_COMPLETION_INDEX"

// checkIndex checks that a pod is the shard that it is taken for. Elsewhere there is no such variable.
func checkIndex(said string, index int) error {
	if said != "" && said != strconv.Itoa(index) {
		return fmt.Errorf("%s is %q, and the job is that of shard %d", IndexVariable, said, index)
	}
	return nil
}

// Serve is a shard as a process: its coordinator calls what a service has (net/rpc, in JSON) until in ends. Then what
// runs is given up.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &service{life: ctx, stop: make(chan struct{}, 1)}
	defer func() {
		if w := s.worker.Load(); w != nil {
			_ = w.Close()
		}
	}()
	server := rpc.NewServer()
	if err := server.RegisterName(serviceName, s); err != nil {
		return err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(&stream{in, out, cancel}))
	return nil
}

// stream tells of the end of what is read from it: a server would first wait for what runs.
type stream struct {
	io.Reader
	io.Writer
	end func()
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil {
		s.end()
	}
	return n, err
}

func (s *stream) Close() error { s.end(); return nil }

const serviceName = "Shard"

type none = struct{}

// service is what a shard does for its coordinator: first Open.
type service struct {
	life   context.Context
	worker atomic.Pointer[Worker]
	stop   chan struct{}
}

func (s *service) Open(job Job, _ *none) error {
	// What sends at its own times wakes for each of them, and waking another processor costs more than the request.
	// Bursts have work for all processors.
	if p := job.Profile.Plan(0); os.Getenv("GOMAXPROCS") == "" && !p.Scheduled() && !job.Profile.Reflectors {
		runtime.GOMAXPROCS(1)
	}
	if err := checkIndex(os.Getenv(IndexVariable), job.Index); err != nil {
		return err
	}
	w, err := NewWorker(job)
	if err != nil {
		return err
	}
	s.worker.Store(w)
	return w.Open(s.life)
}

func (s *service) Block(o Order, out *run.Block) error {
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	block, err := s.worker.Load().Block(ctx, o)
	switch {
	case err != nil:
		return err
	case s.life.Err() != nil:
		// Not by an order: what is here is not the block that was asked for.
		return errors.New("it was told to end while the block ran")
	}
	*out = *block
	_, out.GeneratorRSS = Used(os.Getpid())
	return nil
}

// Stop ends the block that is running, or is about to.
func (s *service) Stop(none, *none) error {
	select {
	case s.stop <- none{}:
	default: // it was told already
	}
	return nil
}

func (s *service) Live(_ none, out *agent.Live) error {
	*out = s.worker.Load().Live()
	return nil
}

func (s *service) Now(_ none, out *time.Time) error {
	*out = time.Now()
	return nil
}

// errLost marks a shard that has gone.
var errLost = errors.New("was lost")

// MaxOffset is by how much the clock of a shard may differ from the coordinator's, beside what the round trip
// leaves uncertain: all shards begin a block at one time, and half a LateTolerance (10 ms by default) of
// difference would begin to show in the lag.
const MaxOffset = 5 * time.Millisecond

// MaxUncertainty is how uncertain the measurement may be, half of the shortest round trip: a check has to see 50 ms.
const MaxUncertainty = 50 * time.Millisecond

const (
	// questions is how often a shard is asked for its time; the shortest round trip counts, as the least uncertain one.
	questions     = 8
	moreQuestions = 32 // asked while all round trips were long
	answerTimeout = 5 * time.Second
)

// Clocks compares the clocks of all shards with this process's.
func (g *Group) Clocks(ctx context.Context) ([]run.Clock, error) {
	all, errs := make([]run.Clock, len(g.members)), make([]error, len(g.members))
	for i, m := range g.members {
		if all[i], errs[i] = m.clock(ctx); errs[i] == nil {
			errs[i] = Judge(all[i])
		}
	}
	return all, errors.Join(errs...)
}

// Judge is an error if a clock is off, or cannot be told not to be.
func Judge(c run.Clock) error {
	offset, uncertainty := time.Duration(c.Offset), time.Duration(c.Uncertainty)
	switch {
	case uncertainty > MaxUncertainty:
		return fmt.Errorf("the clock of %s cannot be compared: the shortest of %d round trips leaves ±%s uncertain, at most %s may be",
			c.Shard, moreQuestions, uncertainty.Round(time.Microsecond), MaxUncertainty)
	case offset.Abs() > uncertainty+MaxOffset:
		return fmt.Errorf("the clock of %s differs from the coordinator's by %s ± %s, at most %s and what is uncertain may be",
			c.Shard, offset.Round(time.Microsecond), uncertainty.Round(time.Microsecond), MaxOffset)
	}
	return nil
}

// clock asks for the time, again and again, and takes what the shortest round trip says: the shard read its clock
// somewhere between question and answer.
func (m *member) clock(ctx context.Context) (run.Clock, error) {
	best := run.Clock{Shard: m.name, Uncertainty: run.Duration(time.Hour)}
	for i := range moreQuestions {
		if i >= questions && time.Duration(best.Uncertainty) <= MaxUncertainty {
			break
		}
		before, now := time.Now(), time.Time{}
		if err := m.now(ctx, &now); err != nil {
			return best, err
		}
		trip := time.Since(before)
		if half := trip / 2; half < time.Duration(best.Uncertainty) {
			// Sub of a time from elsewhere compares wall clocks, which is the question.
			best.Offset, best.Uncertainty = run.Duration(now.Sub(before.Round(0))-half), run.Duration(half)
		}
	}
	return best, nil
}

func (m *member) now(ctx context.Context, out *time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("does not say its time within %s", answerTimeout))
	defer cancel()
	return m.call(ctx, "Now", none{}, out)
}
