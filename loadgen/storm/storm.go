// Package storm runs load. It starts the control planes of a profile, with gate on and gate off and with the recorder
// in their chains, creates those who take part, and runs pairs of blocks. It leaves what it measures in a run.Run. It
// judges nothing, but reports what went wrong with the measuring.
package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// Options are the options of a run.
type Options struct {
	Profile  *profile.Profile
	Release  local.Release
	Binaries *local.Binaries
	Seed     int64
	// Provider says where servers come from. It is a name in the table of package providers, by default the first.
	// Servers that cannot share an etcd are a cluster each, of NodeImage if that is given. A foreign cluster is only
	// one, the one in Existing.
	Provider, NodeImage string
	Existing            server.Options
	// APIServers are the addresses of the API servers of an existing cluster, https://HOST:PORT, if it has several.
	APIServers []string
	// Image is the image of the Pods in an existing cluster. Kwok means that its nodes are kept by kwok.
	Image string
	Kwok  bool
	// Engine says what shards are: Processes (the default), or Pods of an Indexed Job in the cluster that is under
	// load.
	Engine string
	// Shards is how many shards send. A single one is this process, unless it is a pod. Command starts another process
	// that calls shard.Serve.
	Shards  int
	Command []string
	// RecorderCommand, if it is given, starts a process that calls ServeRecorder. Without it, and for clusters of kind,
	// the recorder is part of this process.
	RecorderCommand []string
	// Say is called for events other than blocks, Progress for the progress of a block, and Created, from several
	// goroutines, with how many objects of the agents exist. Each may be nil.
	Say      func(text string)
	Progress func(Progress)
	Created  func(done, total int64)
	// Block, if it is given, is called with each block when everything about it is known.
	Block func(number int, b *run.Block) error
}

// These are the engines.
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
	plan       []plannedBlock
	shrunk     map[profile.Side]bool // where the smallest schedule was looked for
	undo       []func() error        // removes what the run has created for itself
	recorder   *recorderProcess      // if it is nil, the recorder is part of this process
	idle       map[profile.Server]map[string]run.Cost
	background map[profile.Server]int64 // checks of others in a block
	held       map[profile.Server]heldSince
	// webhookCalls are reviews that requests of others make the server send to its webhooks in a block.
	webhookCalls map[profile.Server]int64
}

// Execute runs a profile. An error means that nothing was measured. What goes wrong later is in Run.Problems.
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
	r := &runner{
		Options:      o,
		servers:      map[profile.Server]*controlPlane{},
		last:         map[profile.Side]time.Time{},
		plan:         orderBlocks(o.Profile, o.Seed),
		shrunk:       map[profile.Side]bool{},
		idle:         map[profile.Server]map[string]run.Cost{},
		background:   map[profile.Server]int64{},
		held:         map[profile.Server]heldSince{},
		webhookCalls: map[profile.Server]int64{},
	}
	r.Provider = cmp.Or(r.Provider, providers.Default())
	if r.Say == nil {
		r.Say = func(string) {}
	}
	r.out = o.newRun()
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
		if !r.beginStart(ctx, i) || !r.runBlock(ctx, i) {
			break
		}
	}
	r.watchGrowth(ctx)
	r.watchOthers(ctx)
	r.out.DropOwn()
	r.out.Interrupted = ctx.Err() != nil
	r.out.Machine.LoadAfter = loadAverage()
	r.out.Finished = time.Now().UTC()
	return r.out, nil
}

func (r *runner) problem(block int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.Say("problem: " + text)
	text, _, _ = strings.Cut(text, "\n") // the end of a process's log is not for the record
	r.out.Problems = append(r.out.Problems, run.Problem{Block: block, Text: text})
}

// stop ends the shards and then the servers, beginning with the one that uses the other's etcd.
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

// prepare starts the servers and creates the agents, until all of them are accepted.
func (r *runner) prepare(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	var shared *population.Population
	for _, name := range r.Profile.Servers() {
		s := r.servers[name]
		s.population = shared
		if err := r.prepareServer(ctx, s); err != nil {
			return err
		}
		if r.sharedStorage() {
			shared = s.population
		}
	}
	return r.connect(ctx)
}

// prepareServer creates the agents of a server, if it does not share another's, and waits until it accepts them.
func (r *runner) prepareServer(ctx context.Context, s *controlPlane) error {
	if s.population == nil {
		if err := r.populate(ctx, s); err != nil {
			return err
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
		if err := s.population.Settle(ctx, t.Anonymous(), r.Profile, s.name); err != nil {
			return fmt.Errorf("on %s: %w", s.name, err)
		}
	}
	return nil
}

func (r *runner) populate(ctx context.Context, s *controlPlane) (err error) {
	begin := time.Now()
	place := population.Place{Admin: s.targets[0].Admin(), Shared: r.can().Foreign, Kwok: r.Kwok, Progress: r.Created}
	storage, err := s.targets[0].Storage()
	if err != nil {
		return err
	}
	if storage != nil { // otherwise everything goes through the API
		defer func() { _ = storage.Close() }()
		place.Storage = storage
	}
	if s.population, err = population.Create(ctx, place, r.Profile); err != nil {
		return fmt.Errorf("creating the agents: %w", err)
	}
	took := time.Since(begin).Seconds()
	r.Say(fmt.Sprintf("created %d nodes with %d pods each, and the agents of %d variants, in %.1f s",
		r.Profile.Nodes+1, r.Profile.PodsPerNode, len(r.Profile.Used()), took))
	return nil
}

// newRun returns what follows for a run from the options and the machine.
func (o *Options) newRun() *run.Run {
	p := o.Profile
	return &run.Run{
		Profile:    p.Name,
		Seed:       o.Seed,
		Agents:     p.Agents(),
		Population: describePopulation(p),
		Authorizer: p.Authorizer.Text(p.WebhookDelay),
		Steady:     p.Steady(),
		Pairs:      p.Pairs,
		Starts:     p.Starts,
		Shards:     o.Shards,
		Engine:     o.Engine,
		Started:    time.Now().UTC(),
		Machine:    inspectMachine(),
		Problems:   []run.Problem{},
	}
}

// runBlock runs a block and hands it over, and reports whether to go on.
func (r *runner) runBlock(ctx context.Context, i int) bool {
	before := len(r.out.Blocks)
	more := r.block(ctx, i)
	if len(r.out.Blocks) == before || r.Block == nil {
		return more
	}
	if err := r.Block(before, &r.out.Blocks[before]); err != nil {
		r.problem(before, "%v", err)
		return false
	}
	return more
}

func describePopulation(p *profile.Profile) run.Population {
	every := p.Arrivals.Every
	if p.Once() {
		every = 0
	}
	return run.Population{
		Nodes: p.Nodes, PodsPerNode: p.PodsPerNode, DaemonSets: p.DaemonSets, Requestors: p.Requestors,
		ServiceAccounts: p.Accounts(), Arrivals: string(p.Arrivals.Kind), Every: run.Duration(every),
	}
}
