package campaign

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/ci/mutants/mutate"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// server is a control plane that can be every mutant, one after the other.
type server struct {
	target *target.Target
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
func (c *Campaign) start(ctx context.Context, o target.Options, mutant int) (_ *server, err error) {
	s := &server{seed: fmt.Sprintf("%d-%d", c.Seed, c.servers.Add(1))}
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
	o.KubeAPIServerEnv = []string{mutate.SharedVariable + "=" + s.shared.path, "GOGC=400"}
	if s.target, err = target.Start(ctx, o); err != nil {
		return nil, err
	}
	if m := s.target.Witness.Mismatches; len(m) > 0 {
		return nil, fmt.Errorf("%w: %s", errWitness, m[0])
	}
	s.replay, err = replay.New(s.target)
	return s, err
}

// startTwice tries once more: a busy machine must not pass for a server that does not start.
func (c *Campaign) startTwice(ctx context.Context, o target.Options, mutant int) (*server, error) {
	s, err := c.start(ctx, o, mutant)
	if err != nil && ctx.Err() == nil {
		s, err = c.start(ctx, o, mutant)
	}
	return s, err
}

func (s *server) stop() error {
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
func (s *server) try(ctx context.Context, scenario *scenarios.Scenario) outcome {
	begin := time.Now()
	evidence := s.replayOnce(ctx, scenario)
	o := outcome{Result: verdicts.Judge(scenario, evidence), took: time.Since(begin), setup: len(evidence.Problems) > 0 && len(evidence.Steps) == 0}
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

func (s *server) replayOnce(ctx context.Context, scenario *scenarios.Scenario) *verdicts.Evidence {
	run := strconv.FormatInt(s.runs.Add(1), 10)
	return s.replay.Replay(ctx, scenario, scenarios.Suffix(0, s.seed, scenario.ID, run))
}
