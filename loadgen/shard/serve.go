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
	"strconv"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/reports/load/run"
)

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

// Close implements io.Closer.
func (s *stream) Close() error { s.end(); return nil }

const serviceName = "Shard"

// none is an argument or an answer that says nothing.
type none = struct{}

// service is what a shard does for its coordinator: first Open.
type service struct {
	life   context.Context
	worker atomic.Pointer[Worker]
	stop   chan struct{}
}

// Open takes the job, and opens the connections.
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

// Block runs one block.
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

// Live is how the block is going.
func (s *service) Live(_ none, out *agent.Live) error {
	*out = s.worker.Load().Live()
	return nil
}

// Now is what time it is here.
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

// MaxUncertainty is how uncertain the measurement may be: half of the shortest round trip. A check that could not
// see 50 ms would be none.
const MaxUncertainty = 50 * time.Millisecond

const (
	// questions is how many times a shard is asked for its time. The answer with the shortest round trip counts, as the
	// least uncertain one.
	questions = 8
	// moreQuestions are asked while all round trips were long.
	moreQuestions = 32
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
