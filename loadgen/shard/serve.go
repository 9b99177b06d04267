package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
