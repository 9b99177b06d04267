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

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	// flowSteady is how long requests flow before an API server is replaced and after the next is ready: enough for hundreds.
	// On a busy machine it is longer, until each setup has had an answer, but no longer than flowPatience.
	flowSteady   = time.Second
	flowPatience = time.Minute
	// eventPatience is how long after an answer its audit event may be read.
	eventPatience = 5 * time.Second
	// flowWorkers send requests, each one after another, and the setups in turn.
	flowWorkers = 4
	// flowPause is between two requests of a worker: some hundred a second leave processors to the API servers that start.
	flowPause = 10 * time.Millisecond
	// flowBackoff is the pause after a request without an answer, as clients wait that find no server.
	flowBackoff = 50 * time.Millisecond
	// flowTimeout ends a request that nobody answers.
	flowTimeout = 10 * time.Second
)

// flow sends the requests of some setups all the time.
type flow struct {
	host  string
	setup []flowSetup

	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	samples []FlowSample
}

// flowSetup is a setup whose requests are sent.
type flowSetup struct {
	scenario *scenarios.Scenario // any of the setup: the request is the same
	kept     *replay.KeptSetup
}

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
		sampleCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flowTimeout)
		o, err := run.Send(sampleCtx, s.scenario, s.kept, f.host)
		cancel()
		sample, pause := FlowSample{Setup: s.scenario.Setup, Seen: o, Server: -1}, flowPause
		if err != nil {
			sample.Error, pause = errorClass(err), flowBackoff
		}
		f.mu.Lock()
		f.samples = append(f.samples, sample)
		f.mu.Unlock()
		clusters.Pause(ctx, pause)
	}
}

// settle returns when requests have flowed for a while, and each setup has had an answer to a request that was sent since: from
// anybody, or from one API server, if it is named.
func (f *flow) settle(ctx context.Context, replica *server.Server) {
	begin := time.Now()
	clusters.Pause(ctx, flowSteady)
	for time.Since(begin) < flowPatience && !f.answeredSince(begin, replica) {
		if !clusters.Pause(ctx, flowBackoff) {
			return
		}
	}
}

// answeredSince reports whether each setup has had an answer to a request that was sent after a time, from an API server if one
// is named.
func (f *flow) answeredSince(at time.Time, replica *server.Server) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	isAnswered := map[string]bool{}
	for _, s := range f.samples {
		if s.isUnanswered() || s.Seen.Sent.Before(at) {
			continue
		}
		if replica == nil || replica.HasEvent(s.Seen.Response.AuditID) {
			isAnswered[s.Setup] = true
		}
	}
	return len(isAnswered) == len(f.setup)
}

func (f *flow) stop() []FlowSample {
	f.cancel()
	f.workers.Wait()
	slices.SortStableFunc(f.samples, func(a, b FlowSample) int { return a.Seen.Sent.Compare(b.Seen.Sent) })
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

// recordFlow returns the requests with the audit event of the API server that answered each.
func (u *Upgrade) recordFlow(ctx context.Context, samples []FlowSample) *FlowRecord {
	f := &FlowRecord{Samples: samples, Suffixes: map[string]string{}, Servers: seq.Map(u.histories, slices.Clone)}
	for name, kept := range u.flowing {
		f.Suffixes[name] = kept.Suffix
	}
	for until := time.Now().Add(eventPatience); ; {
		if missing := u.takeEvents(samples); missing == 0 || time.Now().After(until) || !clusters.Pause(ctx, flowBackoff) {
			return f
		}
	}
}

// takeEvents adds the audit events that have come to the requests that do not have theirs, and counts those that have not.
func (u *Upgrade) takeEvents(samples []FlowSample) (missing int) {
	for i := range samples {
		s := &samples[i]
		if s.Error != "" || s.Server >= 0 {
			continue
		}
		u.takeEvent(s)
		if s.Server < 0 && !s.isUnanswered() {
			missing++
		}
	}
	return missing
}

// takeEvent adds the audit event of a request, if an API server has written it.
func (u *Upgrade) takeEvent(s *FlowSample) {
	for n, t := range u.targets {
		if raw, found := t.TakeEvent(s.Seen.Response.AuditID); found {
			s.Server, s.Seen.Audit = n, raw
			return
		}
	}
}
