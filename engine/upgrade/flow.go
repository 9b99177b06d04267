package upgrade

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	// flowWorkers is how many requests are under way at once.
	flowWorkers = 4
	// flowPause is between two requests of a worker: some hundred a second leave
	// the processors to the API servers that start meanwhile.
	flowPause = 10 * time.Millisecond
	// flowTimeout ends a request that nobody answers.
	flowTimeout = 10 * time.Second
)

// flow sends the requests of setups, one setup after the other, all the time.
type flow struct {
	host  string
	setup []flowSetup

	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	samples []reports.FlowSample
}

// flowSetup is a setup whose request is sent.
type flowSetup struct {
	scenario *scenarios.Scenario // any of the setup: the request is the same
	kept     *replay.Kept
}

// startFlow sends requests to host until stop is called or ctx ends.
func startFlow(ctx context.Context, run *replay.Replayer, host string, setups []flowSetup) *flow {
	ctx, cancel := context.WithCancel(ctx)
	f := &flow{host: host, setup: setups, cancel: cancel}
	for w := range flowWorkers {
		f.workers.Go(func() { f.work(ctx, run, w) })
	}
	return f
}

func (f *flow) work(ctx context.Context, run *replay.Replayer, first int) {
	for i := first; ctx.Err() == nil; i++ {
		s := f.setup[i%len(f.setup)]
		// The request is not cut off when the flow ends: its answer counts.
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), flowTimeout)
		o, err := run.Send(one, s.scenario, s.kept, f.host)
		cancel()
		seen := reports.FlowSample{Setup: s.scenario.Setup, Seen: o, Server: -1}
		if err != nil {
			seen.Error = errorClass(err)
		}
		f.mu.Lock()
		f.samples = append(f.samples, seen)
		f.mu.Unlock()
		select {
		case <-time.After(flowPause):
		case <-ctx.Done():
		}
	}
}

// stop ends the flow and returns what was sent, in the order of sending.
func (f *flow) stop() []reports.FlowSample {
	f.cancel()
	f.workers.Wait()
	slices.SortStableFunc(f.samples, func(a, b reports.FlowSample) int { return a.Seen.Sent.Compare(b.Seen.Sent) })
	return f.samples
}

// errorClass is what the client saw, without ports and addresses.
func errorClass(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	parts := strings.Split(err.Error(), ": ")
	return parts[len(parts)-1]
}

// evidence is what became of samples: each has the audit event of the API server that answered it.
func (u *Upgrade) evidence(samples []reports.FlowSample) *reports.FlowEvidence {
	f := &reports.FlowEvidence{Samples: samples, Suffixes: map[string]string{}}
	for name, kept := range u.flowing {
		f.Suffixes[name] = kept.Suffix
	}
	for _, history := range u.histories {
		f.Servers = append(f.Servers, slices.Clone(history))
	}
	for i := range samples {
		s := &samples[i]
		for n, t := range u.targets {
			if raw, ok := t.TakeEvent(s.Seen.Response.AuditID); ok && s.Error == "" {
				s.Server, s.Seen.Audit = n, raw
				break
			}
		}
	}
	f.Judge(func(cell, setup string) (*scenarios.Scenario, verdicts.Cell) {
		for _, stage := range u.Stages {
			for _, one := range stage.Plan.Runs() {
				if stage.Plan.Target.Cell.Name == cell && one.Setup == setup {
					return one, stage.Plan.Target.Cell
				}
			}
		}
		return nil, verdicts.Cell{}
	})
	return f
}
