// Package storm runs load: it starts the control planes of a profile, gate on and gate off, with the recorder in
// their chains, creates who takes part, and runs pairs of blocks. What it measures it leaves in a run.Run; it
// judges nothing, but says what went wrong with the measuring.
package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
	"github.com/authzconf/authzconf/reports/load"
)

// Options are a run.
type Options struct {
	Profile     *profile.Profile
	ProfileYAML []byte // its text, for the record
	Release     local.Release
	Binaries    *local.Binaries
	Seed        int64
	// Provider is where servers come from: a name of the table of package providers, by default its first. Servers that
	// cannot share an etcd are a cluster each, of NodeImage if that is given. Of a foreign cluster there is one, which
	// Existing says.
	Provider, NodeImage string
	Existing            server.Options
	// APIServers are the addresses of those of an existing cluster, https://HOST:PORT, if it has several.
	APIServers []string
	// Image is that of the Pods of an existing cluster. Kwok says that its nodes have kwok.
	Image string
	Kwok  bool
	// Engine says what shards are, Processes (the default) or Pods of an Indexed Job in the cluster that is under load.
	Engine string
	// Shards is how many shards send. A single one is this process, unless it is a pod. Command is how another
	// process is started that calls shard.Serve.
	Shards  int
	Command []string
	// RecorderCommand, if given, is how a process is started that calls ServeRecorder. Without it, and for clusters of
	// kind, the recorder is part of this process.
	RecorderCommand []string
	// Tool and Called are authzconf's version, and how it was called.
	Tool   string
	Called []string
	// Said is told what happens besides blocks, Progress how a block is going, and Created, from several
	// goroutines, how many objects of the agents are there; each may be nil.
	Said     func(text string)
	Progress func(Progress)
	Created  func(done, total int64)
}

// Progress is how a run is going.
type Progress struct {
	// Block counts from 1, of Blocks.
	Block, Blocks int
	Comparison    string
	Side          profile.Side
	// Elapsed is since the block's start; Left is until the end of the last block.
	Elapsed, Left time.Duration
	Asked         float64 // how many requests were meant to be sent by now, on average
	Live          agent.Live
	Reviews       int64
}

const progressEvery = time.Second

// Engines.
const (
	Processes = "processes"
	Pods      = "kubernetes"
)

type runner struct {
	Options
	out        *run.Run
	servers    map[profile.Server]*controlPlane
	generators []shard.Generator          // one for all servers, or one for each
	last       map[profile.Side]time.Time // when a block of the side ended
	plan       []planned
	shrunk     map[profile.Side]bool // where the smallest schedule was looked for
	undo       []func() error        // removes what the run has made for itself
	recorder   *recorderProcess      // nil: the recorder is part of this process
	idle       map[profile.Server]map[string]run.Cost
	background map[profile.Server]int64 // checks of others in a block
}

// Execute runs a profile. An error means that nothing was measured; what goes wrong later is in Run.Problems.
func Execute(ctx context.Context, o Options) (*run.Run, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := o.checkFiles(); err != nil {
		return nil, err
	}
	return newRunner(o).execute(ctx)
}

func newRunner(o Options) *runner {
	r := &runner{Options: o, servers: map[profile.Server]*controlPlane{}, last: map[profile.Side]time.Time{}, plan: order(o.Profile, o.Seed), shrunk: map[profile.Side]bool{}, idle: map[profile.Server]map[string]run.Cost{}, background: map[profile.Server]int64{}}
	r.Provider = cmp.Or(r.Provider, providers.Default())
	if r.Said == nil {
		r.Said = func(string) {}
	}
	r.out = o.head()
	r.out.Started, r.out.Machine, r.out.Problems = time.Now().UTC(), machine(), []run.Problem{}
	return r
}

func (r *runner) execute(ctx context.Context) (_ *run.Run, err error) {
	defer func() {
		if stopErr := r.stop(); err != nil {
			err = errors.Join(err, stopErr)
		} else if stopErr != nil {
			r.problem(-1, "stopping: %v", stopErr)
		}
	}()
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	r.out.Machine.LoadBefore = loadAverage()
	r.measureIdle(ctx)
	for i := range r.plan {
		if !r.begin(ctx, i) || !r.block(ctx, i) {
			break
		}
	}
	r.watchOthers(ctx)
	if r.out.OwnUnknown {
		withoutOwn(r.out.Blocks)
	}
	r.out.Interrupted = ctx.Err() != nil
	r.out.Machine.LoadAfter = loadAverage()
	r.out.Finished = time.Now().UTC()
	return r.out, nil
}

func (r *runner) problem(block int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.Said("problem: " + text)
	text, _, _ = strings.Cut(text, "\n") // the end of a process's log is not for the record
	r.out.Problems = append(r.out.Problems, run.Problem{Block: block, Text: text})
}

// stop ends the shards, then the servers: first the one that uses the other's etcd.
func (r *runner) stop() error {
	errs := seq.Map(r.generators, func(g shard.Generator) error { return g.Close() })
	for _, undo := range r.undo {
		errs = append(errs, undo())
	}
	for _, name := range slices.Backward(r.Profile.Servers()) {
		if s := r.servers[name]; s != nil {
			errs = append(errs, server.StopAll(s.balancer, s.targets))
		}
	}
	if r.recorder != nil {
		errs = append(errs, r.recorder.close())
	}
	return errors.Join(errs...)
}

func (r *runner) prepare(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	var shared *population.Population
	for _, name := range r.Profile.Servers() {
		s := r.servers[name]
		if s.population = shared; shared == nil {
			if err := r.populate(ctx, s); err != nil {
				return err
			}
			if r.sharedStorage() {
				shared = s.population
			}
		}
		// From here on nothing is kept of single reviews.
		r.count(s, time.Now(), false)
		if r.Profile.PriorityLevel != nil {
			if err := r.makeLevel(ctx, s); err != nil {
				return err
			}
		}
		for _, t := range s.targets {
			if err := s.population.Settle(ctx, t.Anonymous(), r.Profile, name); err != nil {
				return fmt.Errorf("on %s: %w", name, err)
			}
		}
	}
	return r.connect(ctx)
}

func (r *runner) populate(ctx context.Context, s *controlPlane) (err error) {
	begin := time.Now()
	place := population.Place{Admin: s.targets[0].Admin(), Shared: r.can().Foreign, Kwok: r.Kwok, Progress: r.Created}
	storage, err := s.targets[0].Storage()
	if err != nil {
		return err
	}
	if storage != nil { // else everything goes through the API
		defer func() { _ = storage.Close() }()
		place.Storage = storage
	}
	if s.population, err = population.Create(ctx, place, r.Profile); err != nil {
		return fmt.Errorf("creating the agents: %w", err)
	}
	took := time.Since(begin).Seconds()
	r.Said(fmt.Sprintf("created %d nodes with %d pods each, and the agents of %d variants, in %.1f s",
		r.Profile.Nodes+1, r.Profile.PodsPerNode, len(r.Profile.Used()), took))
	return nil
}

// sharedStorage reports whether all servers hold the same objects.
func (r *runner) sharedStorage() bool { return r.can().SeveralServers || r.can().Foreign }

func machine() run.Machine {
	m := run.Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil {
			m.MemoryBytes = int64(*memory.MemTotalBytes)
		}
	}
	return m
}

// loadAverage is that of the last minute; 0 where the kernel does not say it in /proc.
func loadAverage() float64 {
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if load, err := proc.LoadAvg(); err == nil {
			return load.Load1
		}
	}
	return 0
}

// begin makes ready for block i. If it is the first of a start, all servers but those that have just come up are ended
// and started anew, and all are warmed up. It tells whether to go on.
func (r *runner) begin(ctx context.Context, i int) bool {
	start := r.plan[i].start
	if i > 0 && r.plan[i-1].start == start {
		return true
	}
	// In an order that is drawn: what a process is like may depend on which came before.
	names := r.Profile.Servers()
	random := rand.New(rand.NewPCG(uint64(r.Seed), uint64(start)))
	random.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
	if i > 0 {
		r.Said("starting the servers anew")
		for _, name := range names {
			if err := r.renew(ctx, r.servers[name]); err != nil {
				r.problem(-1, "start %d of %d: %v", start+1, r.Profile.Starts, err)
				return false
			}
		}
		clear(r.last) // they know nobody
	}
	for _, name := range names {
		if err := r.warmUp(ctx, r.servers[name], start); err != nil {
			r.problem(-1, "warming up %s: %v", name, err)
			return false
		}
	}
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

// warmUp opens the connections to a server again and has the agents of its first side ask it as themselves, so that
// nothing is remembered of impersonation. What comes of it is thrown away.
func (r *runner) warmUp(ctx context.Context, s *controlPlane, start int) error {
	i := slices.IndexFunc(r.plan, func(p planned) bool { return p.side.Server == s.name })
	side := profile.Side{Variant: r.plan[i].side.Variant, Server: s.name}
	r.count(s, time.Now(), true)
	_, err := s.generator.Block(ctx, shard.Order{Side: side, Seed: r.plan[i].seed + uint64(start), Start: time.Now().Add(shard.Lead(r.Profile)), WarmUp: true})
	r.out.WarmUps++
	return cmp.Or(err, ctx.Err())
}

// Describe writes what a run would do, and what the oracle predicts of its schedules: of the first block of a variant
// on a server, and of one when all have asked before. Requests that are under way at once may cost more.
func Describe(w io.Writer, o Options) error {
	p := o.Profile
	_, _ = fmt.Fprintf(w, "%s: %s; %d connections to each of %v, Kubernetes %s, %d shards\n", p.Name, who(p), p.Connections(), p.Servers(), o.Release.Version, o.Shards)
	_, _ = fmt.Fprintf(w, "about %.0f requests in a block of %s\n", p.Plan(0).Expected(), p.Block)
	_, _ = fmt.Fprintf(w, "%d comparisons, %d pairs each over %d starts of the servers: %d blocks of %s, and %d for warming up, at least %s; %d tokens\n\n",
		len(p.Comparisons), p.Pairs, p.Starts, 2*p.Pairs*len(p.Comparisons), p.Block, p.Starts*len(p.Servers()), p.Length().Round(time.Second), p.Minted())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPARISON\tSIDE\tVARIANT\tSERVER\tREVIEWS PER REQUEST, FIRST BLOCK\tLATER")
	known := map[profile.Side]string{}
	for _, c := range p.Comparisons {
		for i, side := range []profile.Side{c.A, c.B} {
			if known[side] == "" {
				var err error
				if known[side], err = foretell(o, side); err != nil {
					return err
				}
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", []string{c.Name, ""}[i], []string{"A", "B"}[i], side.Variant, side.Server, known[side])
		}
	}
	return table.Flush()
}

// foretell predicts two blocks of a side, with a block's length between them.
func foretell(o Options, side profile.Side) (string, error) {
	if p := o.Profile; p.Reflectors || p.SelfReviews > 0 || !p.Predictable() {
		return "-\t-", nil // it follows from the server's answers, too
	}
	history, err := population.NewHistory(o.Profile, side.Server, o.Release.Version)
	if err != nil {
		return "", err
	}
	var texts []string
	for i := range 2 {
		sends := o.Profile.Plan(uint64(o.Seed)).Stripe(0, 1)
		predicted, err := history.Predict(side.Does(), time.Time{}.Add(time.Second+time.Duration(i)*2*o.Profile.Block), population.Planned(sends, 0))
		if err != nil {
			return "", err
		}
		low, high := predicted.Range()
		n := float64(max(1, predicted.Requests))
		texts = append(texts, load.Range{Low: float64(low) / n, High: float64(high) / n}.String())
	}
	return strings.Join(texts, "\t"), nil
}

func who(p *profile.Profile) run.Population {
	every := p.Arrivals.Every
	if p.Once() {
		every = 0
	}
	return run.Population{
		Nodes: p.Nodes, PodsPerNode: p.PodsPerNode, DaemonSets: p.DaemonSets, Requestors: p.Requestors,
		ServiceAccounts: p.Accounts(), Arrivals: string(p.Arrivals.Kind), Every: run.Duration(every),
	}
}

// Thresholds are those of a profile. The pairs and starts that its file declares count, whatever a flag asked for: with
// fewer no claim about latency can be made.
func Thresholds(p *profile.Profile) load.Thresholds {
	// The objectives of Kubernetes are judged in every profile.
	t := load.Thresholds{Limits: load.Limits{SLOHeld: true}, Variants: map[string]load.Limits{}, Comparisons: map[string]load.Margins{}, MinPairs: p.Declared.Pairs, MinStarts: p.Declared.Starts}
	for _, limit := range p.Thresholds {
		t.Variants[limit.Variant] = load.Limits{ErrorRate: limit.ErrorRate, ReviewsPerRequest: ptr.Deref(limit.ReviewsPerRequest, 0), P99: run.Duration(ptr.Deref(limit.P99, 0)), SLOHeld: true}
	}
	for _, c := range p.Comparisons {
		t.Comparisons[c.Name] = load.Margins(c.Margins)
	}
	return t
}
