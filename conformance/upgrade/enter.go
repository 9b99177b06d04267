package upgrade

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
)

// outage is how long a killed API server stays away, on top of the start of the next.
const outage = 200 * time.Millisecond

// enter brings up the API server of a stage: anew on the first, then in place of the one before, under requests if asked.
func (u *Upgrade) enter(ctx context.Context, stage *Stage) error {
	if err := u.resumePods(ctx); err != nil {
		return err
	}
	if stage.Index == 0 {
		return u.begin(ctx, stage)
	}
	for i, t := range u.targets {
		u.marks[i] = t.Mark()
	}
	change := u.disturb
	switch {
	case stage.Nodes != "":
		change = u.replaceNodes
	case !stage.flows():
		change = u.replace
	}
	if !stage.flows() {
		return change(ctx, stage)
	}
	flow, err := u.flow(ctx, stage)
	if err != nil {
		return err
	}
	flow.settle(ctx, nil)
	err = change(ctx, stage)
	if err == nil {
		flow.settle(ctx, u.targets[stage.Server]) // a balancer may be slow to find it
	}
	stage.flow = u.recordFlow(ctx, flow.stop())
	u.say("%s: %d requests meanwhile, %d without an answer", stage.Name(), len(stage.flow.Samples), stage.flow.unanswered())
	return err
}

func (u *Upgrade) begin(ctx context.Context, stage *Stage) error {
	begin := time.Now()
	o := stage.Target
	if stage.Server > 0 {
		o.Join = u.targets[0]
	}
	t, err := server.Start(ctx, o)
	if err != nil {
		return err
	}
	stage.Cell.Ready = time.Since(begin)
	u.targets, u.marks = append(u.targets, t), append(u.marks, 0)
	u.histories = append(u.histories, []FlowStay{{Cell: stage.Name(), Ready: time.Now()}})
	if u.needsBalancer() {
		u.balancer, err = balancer.Start(u.addresses()...)
	}
	return err
}

// needsBalancer reports whether all API servers are there that requests flow to through a balancer.
func (u *Upgrade) needsBalancer() bool {
	isThere := u.plan.hasBalancer() || u.plan.path.Direct
	return u.plan.flows() && !isThere && len(u.targets) == u.plan.serverCount()
}

func (u *Upgrade) replace(ctx context.Context, stage *Stage) error {
	begin := time.Now()
	err := u.targets[stage.Server].Restart(ctx, stage.Target)
	stage.Down = time.Since(begin)
	history := u.histories[stage.Server]
	if last := &history[len(history)-1]; last.Ended.IsZero() {
		last.Ended = time.Now()
		if err == nil {
			last.Ended = u.targets[stage.Server].Replaced() // it ended in order and answered until then
		}
	}
	if err == nil {
		u.histories[stage.Server] = append(history, FlowStay{Cell: stage.Name(), Ready: time.Now()})
	}
	return err
}

// disturb replaces the API server in the way that the stage asks for. Our balancer has it taken out before it ends
// and put back when it is ready, as one with health checks does; a killed one is only taken out afterwards. A
// cluster's own balancer does what it does.
func (u *Upgrade) disturb(ctx context.Context, stage *Stage) error {
	t := u.targets[stage.Server]
	switch stage.Fault {
	case upgradepath.KillAPIServer:
		begin := time.Now()
		if err := t.Kill(); err != nil {
			return err
		}
		history := u.histories[stage.Server]
		history[len(history)-1].Ended = time.Now()
		clusters.Pause(ctx, outage)
		defer func() { stage.Down = time.Since(begin) }()
	case upgradepath.RestartEtcd:
		plane, isLocal := t.Plane()
		if !isLocal {
			return fmt.Errorf("the fault %s is for a local control plane", stage.Fault)
		}
		if err := plane.RestartEtcd(ctx); err != nil {
			return err
		}
		clusters.Pause(ctx, flowSteady)
	case upgradepath.WebhookDown:
		t.SetWebhookDown(true)
		defer t.SetWebhookDown(false)
		clusters.Pause(ctx, flowSteady)
	}
	if u.balancer != nil {
		addresses := u.addresses()
		u.balancer.Set(append(addresses[:stage.Server:stage.Server], addresses[stage.Server+1:]...)...)
		defer func() { u.balancer.Set(u.addresses()...) }()
	}
	return u.replace(ctx, stage)
}

// flow starts the requests of the setups that work while a stage is entered: to the balancer, or to the one API server.
func (u *Upgrade) flow(ctx context.Context, stage *Stage) (*flow, error) {
	run, err := replay.New(u.targets[0])
	if err != nil {
		return nil, err
	}
	host := u.targets[0].Host()
	switch {
	case u.balancer != nil:
		host = "https://" + u.balancer.Addr()
	case u.plan.hasBalancer():
		host = u.targets[0].Balancer()
	}
	setups := seq.Map(stage.Workloads, func(name string) flowSetup {
		return flowSetup{scenario: stage.scenario[name], kept: u.flowing[name]}
	})
	return startFlow(ctx, run, host, setups), nil
}

func (u *Upgrade) addresses() []string {
	return seq.Map(u.targets, func(t *server.Server) string { return strings.TrimPrefix(t.Host(), "https://") })
}
