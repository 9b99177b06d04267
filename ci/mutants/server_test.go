package mutants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// mutantServer is a control plane that can be every mutant, one after the other.
type mutantServer struct {
	target *server.Server
	replay *replay.Replayer
	shared *sharedFile
	seed   string
	runs   atomic.Int64
	// served is the number of mutants it has been.
	served int

	once    sync.Once
	stopErr error
}

// errWitness is wrapped by the error of a server that runs but is another one than was asked for.
var errWitness = errors.New("the server is not what was asked for")

// start brings up a control plane with a mutant; 0 is the unmutated program.
func (c *Campaign) start(ctx context.Context, o server.Options, mutant int) (_ *mutantServer, err error) {
	s := &mutantServer{seed: fmt.Sprintf("%d-%d", c.Seed, c.servers.Add(1))}
	if s.shared, err = newSharedFile(len(c.Sources.Mutants), mutant); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	o.KubeAPIServerPath = c.Program
	// Most of a fresh server's time is its start; with fewer garbage collections it is shorter.
	o.KubeAPIServerEnv = []string{SharedVariable + "=" + s.shared.path, "GOGC=400"}
	if s.target, err = server.Start(ctx, o); err != nil {
		return nil, err
	}
	if m := s.target.Witness.Mismatches; len(m) > 0 {
		return nil, fmt.Errorf("%w: %s", errWitness, m[0])
	}
	s.replay, err = replay.New(s.target)
	return s, err
}

// startTwice tries once more: a busy machine must not pass for a server that does not start.
func (c *Campaign) startTwice(ctx context.Context, o server.Options, mutant int) (*mutantServer, error) {
	s, err := c.start(ctx, o, mutant)
	if err != nil && ctx.Err() == nil {
		s, err = c.start(ctx, o, mutant)
	}
	return s, err
}

func (s *mutantServer) stop() error {
	s.once.Do(func() {
		if s.target != nil {
			s.stopErr = s.target.Stop()
		}
		s.shared.close()
	})
	return s.stopErr
}

// outcome is a verdict, and whether further runs agreed.
type outcome struct {
	verdicts.Result
	// unsteady: it failed or could not be judged, but not every time. setup: it never came to the first request, so
	// nothing is known of the server.
	unsteady, setup bool
	took            time.Duration
}

// repeats is how often a scenario that does not pass is run again, under other names: a busy machine must not pass
// for a broken server.
const repeats = 2

// try runs a scenario, and if it does not pass, again; but not one that cannot be set up, which may take long each time
// and catches nothing.
func (s *mutantServer) try(ctx context.Context, scenario *scenarios.Scenario) outcome {
	begin := time.Now()
	evidence := s.replayOnce(ctx, scenario)
	o := outcome{Result: verdicts.Judge(scenario, evidence), took: time.Since(begin)}
	o.setup = o.Verdict == verdicts.Invalid && len(evidence.Problems) > 0 && len(evidence.Steps) == 0
	for i := 0; i < repeats && o.Verdict != verdicts.Passed && !o.unsteady && !o.setup && ctx.Err() == nil; i++ {
		again := s.replayOnce(ctx, scenario)
		o.unsteady = verdicts.Judge(scenario, again).Verdict == verdicts.Passed
		if i == 0 && o.Verdict == verdicts.Failed {
			evidence.Control = again
			o.Result = verdicts.Judge(scenario, evidence)
		}
	}
	return o
}

func (s *mutantServer) replayOnce(ctx context.Context, scenario *scenarios.Scenario) *verdicts.Evidence {
	run := strconv.FormatInt(s.runs.Add(1), 10)
	return s.replay.Replay(ctx, scenario, scenarios.Suffix(0, s.seed, scenario.ID, run))
}

// cellBaseline is what the unmutated program did in one cell: which scenarios reach which mutants.
type cellBaseline struct {
	target  server.Options
	mutants []Mutant // in the order of the source
	// all are the cell's scenarios, those that wait last, and took is how long each took.
	all  []*scenarios.Scenario
	took map[string]time.Duration
	// start is how long the server took to start.
	start time.Duration
	// reached are the scenarios that reach each mutant, in the same order.
	reached map[int][]*scenarios.Scenario
	// atStart are the mutants that the program reaches before the first scenario.
	atStart map[int]bool
}

// candidates are the scenarios that can detect a mutant: those that reach its place; or all, if the program
// reaches it only while it starts.
func (c *cellBaseline) candidates(number int) []*scenarios.Scenario {
	if reached := c.reached[number]; len(reached) > 0 || !c.atStart[number] {
		return reached
	}
	return c.all
}

// kinds are, by scenario, the places that it reaches of a mutant's function.
func (c *cellBaseline) kinds(m Mutant) map[string]string {
	out := map[string]string{}
	for _, n := range c.mutants {
		if n.File == m.File && n.Function == m.Function {
			for _, s := range c.reached[n.Number] {
				out[s.ID] += string(rune(n.Number))
			}
		}
	}
	return out
}

// cacheFile has the caches of impersonation.
const cacheFile = "cache.go"

// needsStart says whether a mutant has to be the chosen one from the start: the program reaches it only then, or
// it changes what the server keeps in its caches, where it could meet what another mutant left.
func (c *cellBaseline) needsStart(m Mutant) bool {
	return len(c.reached[m.Number]) == 0 || m.File == cacheFile
}

// measureCell runs all scenarios of a cell against the program with no mutant chosen, which they have to pass, and
// finds what each reaches. Scenarios that wait run side by side, and are taken to reach the same.
func (c *Campaign) measureCell(ctx context.Context, plan conformance.CellPlan) (_ *cellBaseline, err error) {
	base := &cellBaseline{
		target: plan.Target, mutants: c.Sources.Mutants, took: map[string]time.Duration{},
		reached: map[int][]*scenarios.Scenario{}, atStart: map[int]bool{},
	}
	for _, item := range plan.Items {
		if item.Fate == conformance.Run {
			base.all = append(base.all, item.Scenario)
		}
	}
	if base.target.Kubectl, err = base.target.Binaries.Kubectls(ctx, scenarios.KubectlVersions(base.all)); err != nil {
		return nil, err
	}
	begin := time.Now()
	s, err := c.start(ctx, base.target, 0)
	if err != nil {
		return nil, err
	}
	base.start = time.Since(begin)
	return base, errors.Join(base.run(ctx, s), s.stop())
}

func (c *cellBaseline) run(ctx context.Context, s *mutantServer) error {
	started, err := s.shared.take()
	if err != nil {
		return err
	}
	for _, n := range started {
		c.atStart[n] = true
	}
	quick, waiting := split(c.all)
	c.all = slices.Concat(quick, waiting)
	var mu sync.Mutex
	// pass runs scenarios side by side that have to pass, and notes what they reach.
	pass := func(which ...*scenarios.Scenario) error {
		var group errgroup.Group
		for _, scenario := range which {
			group.Go(func() error {
				result := s.try(ctx, scenario)
				if result.setup {
					result = s.try(ctx, scenario)
				}
				mu.Lock()
				defer mu.Unlock()
				c.took[scenario.ID] = result.took
				return unmutated(ctx, scenario, result)
			})
		}
		if err := causeOr(ctx, group.Wait()); err != nil {
			return err
		}
		numbers, err := s.shared.take()
		for _, n := range numbers {
			c.reached[n] = append(c.reached[n], which...)
		}
		return err
	}
	for _, scenario := range quick {
		if err := pass(scenario); err != nil {
			return err
		}
	}
	return pass(waiting...)
}

// split parts scenarios that wait from the others.
func split(all []*scenarios.Scenario) (quick, waiting []*scenarios.Scenario) {
	for _, s := range all {
		if s.Waits() > 0 {
			waiting = append(waiting, s)
		} else {
			quick = append(quick, s)
		}
	}
	return quick, waiting
}

// unmutated is an error if a result is not that of a sound program.
func unmutated(ctx context.Context, scenario *scenarios.Scenario, o outcome) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.Verdict == verdicts.Passed || o.unsteady:
		return nil
	}
	return fmt.Errorf("the unmutated program does not pass %s: %s: %s", scenario.ID, o.Verdict, o.Reason)
}
