package shard

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// Serve runs a shard as a process. Until in ends, its coordinator calls the methods of service (net/rpc, in JSON). Then
// it gives up what is running.
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

// stream reports the end of what is read from it. A server would first wait for what is running.
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

// service is what a shard does for its coordinator. Open comes first.
type service struct {
	life   context.Context
	worker atomic.Pointer[Worker]
	stop   chan struct{}
}

func (s *service) Open(job Job, _ *none) error {
	limitProcessors(&job.Profile)
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
		// It did not end as ordered, so what it has is not the block that was requested.
		return errors.New("it was told to end while the block ran")
	}
	*out = *block
	_, out.GeneratorRSS = Used(os.Getpid())
	return nil
}

// Stop ends the block that is running or about to run.
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

// limitProcessors makes this process use only one processor if agents send at their own times. A process wakes for each
// of these times, and waking another processor costs more than the request. Bursts have work for all processors.
func limitProcessors(p *profile.Profile) {
	isChosen := os.Getenv("GOMAXPROCS") != ""
	isBurst := p.Plan(0).Scheduled() || p.Reflectors
	if !isChosen && !isBurst {
		runtime.GOMAXPROCS(1)
	}
}
