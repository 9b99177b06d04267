package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const (
	// outage is how long a killed API server stays away, on top of the start of the next.
	outage = 200 * time.Millisecond
)

// enter brings up the API server of a stage: anew on the first, then in place of the one before, under requests if asked.
func (u *Upgrade) enter(ctx context.Context, stage *Stage) error {
	if stage.Index == 0 {
		return u.begin(ctx, stage)
	}
	for i, t := range u.targets {
		u.marks[i] = t.Mark()
	}
	if !u.Path.HighAvailability && stage.Fault == "" {
		return u.replace(ctx, stage)
	}
	flow, err := u.flow(ctx)
	if err != nil {
		return err
	}
	clusters.Pause(ctx, reports.FlowSteady)
	err = u.disturb(ctx, stage)
	if err == nil {
		clusters.Pause(ctx, reports.FlowSteady)
	}
	stage.flow = u.evidence(flow.stop())
	f := stage.flow
	u.events(conformance.Event{Text: fmt.Sprintf("%s: %d requests meanwhile, %d without an answer", stage.Plan.Target.Cell.Name, f.Sent, f.Unanswered)})
	return err
}

func (u *Upgrade) begin(ctx context.Context, stage *Stage) error {
	begin := time.Now()
	o := stage.Plan.Target
	if stage.Server > 0 {
		o.Join = u.targets[0]
	}
	t, err := server.Start(ctx, o)
	if err != nil {
		return err
	}
	stage.Ready = time.Since(begin)
	u.targets, u.marks = append(u.targets, t), append(u.marks, 0)
	u.histories = append(u.histories, []reports.FlowStay{{Cell: stage.Plan.Target.Cell.Name, Ready: time.Now()}})
	if u.flows() && !u.Path.Direct && len(u.targets) == u.servers() {
		u.balancer, err = balancer.Start(u.addresses()...)
	}
	return err
}

func (u *Upgrade) replace(ctx context.Context, stage *Stage) error {
	begin := time.Now()
	err := u.targets[stage.Server].Restart(ctx, stage.Plan.Target)
	stage.Down = time.Since(begin)
	history := u.histories[stage.Server]
	if last := &history[len(history)-1]; last.Ended.IsZero() {
		last.Ended = time.Now()
		if err == nil {
			last.Ended = u.targets[stage.Server].Replaced() // it ended in order and answered until then
		}
	}
	if err == nil {
		u.histories[stage.Server] = append(history, reports.FlowStay{Cell: stage.Plan.Target.Cell.Name, Ready: time.Now()})
	}
	return err
}

// disturb replaces the API server in the way that the stage asks for. The balancer has it taken out before it ends
// and put back when it is ready, as one with health checks does; a killed one is only taken out afterwards.
func (u *Upgrade) disturb(ctx context.Context, stage *Stage) error {
	t := u.targets[stage.Server]
	plane, ok := t.Plane()
	if !ok && stage.Fault != "" {
		return fmt.Errorf("the fault %s is for a local control plane", stage.Fault)
	}
	switch stage.Fault {
	case upgradepath.KillAPIServer:
		begin := time.Now()
		if err := plane.KillAPIServer(); err != nil {
			return err
		}
		history := u.histories[stage.Server]
		history[len(history)-1].Ended = time.Now()
		clusters.Pause(ctx, outage)
		defer func() { stage.Down = time.Since(begin) }()
	case upgradepath.RestartEtcd:
		if err := plane.RestartEtcd(ctx); err != nil {
			return err
		}
		clusters.Pause(ctx, reports.FlowSteady)
	case upgradepath.WebhookDown:
		t.SetWebhookDown(true)
		defer t.SetWebhookDown(false)
		clusters.Pause(ctx, reports.FlowSteady)
	}
	if u.balancer != nil {
		addresses := u.addresses()
		u.balancer.Set(append(addresses[:stage.Server:stage.Server], addresses[stage.Server+1:]...)...)
		defer func() { u.balancer.Set(u.addresses()...) }()
	}
	return u.replace(ctx, stage)
}

// flow starts the requests of all setups that have been made for it: to the balancer, or to the one API server.
func (u *Upgrade) flow(ctx context.Context) (*flow, error) {
	run, err := replay.New(u.targets[0])
	if err != nil {
		return nil, err
	}
	host := u.targets[0].Host()
	if u.balancer != nil {
		host = "https://" + u.balancer.Addr()
	}
	var setups []flowSetup
	seen := map[string]bool{}
	for _, s := range u.set.All() {
		if kept := u.flowing[s.Setup]; kept != nil && !seen[s.Setup] {
			seen[s.Setup] = true
			setups = append(setups, flowSetup{scenario: s, kept: kept})
		}
	}
	if len(setups) == 0 {
		return nil, fmt.Errorf("no setup of the path has a single request that could flow")
	}
	return startFlow(ctx, run, host, setups), nil
}

func (u *Upgrade) addresses() []string {
	return seq.Map(u.targets, func(t *server.Server) string { return strings.TrimPrefix(t.Host(), "https://") })
}

// neighbours are the access reviews that reached the recorders of the other servers during a stage, by server.
func (u *Upgrade) neighbours(stage *Stage) map[string]map[string]int {
	out := map[string]map[string]int{}
	for i, t := range u.targets {
		if i != stage.Server {
			history := u.histories[i]
			out[history[len(history)-1].Cell] = t.Verbs(u.marks[i])
		}
	}
	return out
}

const (
	// flowPause is between two requests of a worker: some hundred a second leave processors to the API servers that start.
	flowPause = 10 * time.Millisecond
	// flowTimeout ends a request that nobody answers.
	flowTimeout = 10 * time.Second
)

type flow struct {
	host  string
	setup []flowSetup

	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	samples []reports.FlowSample
}

type flowSetup struct {
	scenario *scenarios.Scenario // any of the setup: the request is the same
	kept     *replay.Kept
}

func startFlow(ctx context.Context, run *replay.Replayer, host string, setups []flowSetup) *flow {
	ctx, cancel := context.WithCancel(ctx)
	f := &flow{host: host, setup: setups, cancel: cancel}
	for w := range reports.FlowWorkers {
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
		clusters.Pause(ctx, flowPause)
	}
}

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
	f := &reports.FlowEvidence{Samples: samples, Suffixes: map[string]string{}, Servers: seq.Map(u.histories, slices.Clone)}
	for name, kept := range u.flowing {
		f.Suffixes[name] = kept.Suffix
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
