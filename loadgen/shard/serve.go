package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/reports/load/run"
)

// reply is a line that a shard writes: ready, how it is going, what time it is, a block's end, or why there is
// none.
type reply struct {
	Ready bool        `json:"ready,omitempty"`
	Live  *agent.Live `json:"live,omitempty"`
	Block *run.Block  `json:"block,omitempty"`
	Clock *reading    `json:"clock,omitempty"`
	Error string      `json:"error,omitempty"`
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

// liveEvery is how often a shard says how it is going.
const liveEvery = time.Second

// Serve is a shard as a process: a job and then orders come in, replies go out, until in ends. Then what runs is
// given up.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	decoder := json.NewDecoder(in)
	var job Job
	if err := decoder.Decode(&job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	// What sends at its own times wakes for each of them, and waking another processor costs more than the request.
	// Bursts have work for all processors.
	if p := job.Profile.Plan(0); os.Getenv("GOMAXPROCS") == "" && !p.Scheduled() && !job.Profile.Reflectors {
		runtime.GOMAXPROCS(1)
	}
	lines := &lineWriter{encoder: json.NewEncoder(out)}
	worker, err := NewWorker(job)
	if err == nil {
		err = checkIndex(os.Getenv(IndexVariable), job.Index)
	}
	if err == nil {
		err = worker.Open(ctx)
	}
	if err != nil {
		return lines.write(reply{Error: err.Error()})
	}
	defer func() { _ = worker.Close() }()
	if err := lines.write(reply{Ready: true}); err != nil {
		return err
	}
	orders := make(chan Order)
	stop := make(chan struct{}, 1)
	go func() {
		defer close(orders)
		defer cancel()
		for {
			var o Order
			if decoder.Decode(&o) != nil {
				return
			}
			if o.Ask > 0 {
				_ = lines.write(reply{Clock: &reading{Question: o.Ask, Now: time.Now()}})
				continue
			}
			if o.Stop {
				select {
				case stop <- struct{}{}:
				default: // it was told already
				}
				continue
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	for o := range orders {
		if err := lines.write(worker.serve(ctx, o, stop, lines)); err != nil {
			return err
		}
	}
	return nil
}

// serve runs one block.
func (w *Worker) serve(life context.Context, o Order, stop <-chan struct{}, lines *lineWriter) reply {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(liveEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-stop:
				cancel()
			case <-ticker.C:
				live := w.Live()
				_ = lines.write(reply{Live: &live}) // the block's end says it if nobody reads
			}
		}
	})
	block, err := w.Block(ctx, o)
	cancel()
	watching.Wait()
	if err != nil {
		return reply{Error: err.Error()}
	}
	if life.Err() != nil {
		// Not by an order: what is here is not the block that was asked for.
		return reply{Error: "it was told to end while the block ran"}
	}
	_, block.GeneratorRSS = Used(os.Getpid())
	return reply{Block: block}
}

// lineWriter writes one reply a line, from several goroutines.
type lineWriter struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (l *lineWriter) write(r reply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.encoder.Encode(r)
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

// reading is a shard's answer to the question for its time.
type reading struct {
	Question int       `json:"question"`
	Now      time.Time `json:"now"`
}

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
		before := time.Now()
		if err := m.send(Order{Ask: i + 1}); err != nil {
			return best, m.lost()
		}
		now, err := m.answer(ctx, i+1)
		if err != nil {
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

func (m *member) answer(ctx context.Context, question int) (time.Time, error) {
	timeout := time.After(answerTimeout)
	for {
		select {
		case r, ok := <-m.readings:
			if !ok {
				return time.Time{}, m.lost()
			}
			if r.Question == question {
				return r.Now, nil
			}
		case <-timeout:
			return time.Time{}, fmt.Errorf("%s does not say its time within %s", m.name, answerTimeout)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
