package upgrade

import (
	"context"
	"fmt"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// podClaims are what has to be true of the pods that work on a cluster with nodes through the whole path.
func podClaims() []Claim { return []Claim{ClaimPods, ClaimPodAnswers, ClaimPodEvents} }

// hasPods reports whether pods can work on the stage's cluster.
func (s *StagePlan) hasPods() bool { return s.Target.Capabilities().Nodes }

// podsKey is the key of what was seen of the pods on the way to a stage and on it.
func podsKey(stage string) string { return "pods/" + stage }

// podsSuffix is what makes the names of the pods of a path unique.
func (p *Plan) podsSuffix() string { return scenarios.Suffix(p.seed, pathNames, "pods") }

// watchPods deploys the pods that work through the whole path, if they are not there yet, and records what they did since the
// last stage, on the way to this one, and on it since its API server was ready. Then they rest: while scenarios run, what an
// API server counts is theirs.
func (u *Upgrade) watchPods(ctx context.Context, stage *Stage) error {
	if !stage.hasPods() {
		return nil
	}
	ready := time.Now()
	if u.pods == nil {
		if err := u.deployPods(ctx, stage); err != nil {
			return fmt.Errorf("deploying the pods that work through the path: %w", err)
		}
		ready = time.Now()
	}
	work, err := u.pods.Observe(ctx, u.rested, ready)
	if err != nil {
		return fmt.Errorf("the pods that work through the path: %w", err)
	}
	u.rested = work.To
	return u.output.Log.Append(podsKey(stage.Name()), work)
}

func (u *Upgrade) deployPods(ctx context.Context, stage *Stage) (err error) {
	t := u.targets[stage.Server]
	if err := nodes.LoadAgent(ctx, t); err != nil {
		return err
	}
	u.pods, err = nodes.DeployWorkloads(ctx, podCluster{t, u}, u.plan.podsSuffix())
	return err
}

// resumePods has the pods go on that have rested.
func (u *Upgrade) resumePods(ctx context.Context) error {
	if u.pods == nil {
		return nil
	}
	return u.pods.Work(ctx)
}

// judgePods judges a claim about the pods on a stage.
func (p *Plan) judgePods(stage *StagePlan, claim Claim, view record.View) reports.Result {
	now, err := record.Read[nodes.WorkRecord](view, podsKey(stage.Name()))
	if err != nil {
		return unseenPods("this stage")
	}
	gates := p.podGates(stage)
	var checks []nodes.Check
	switch claim {
	case ClaimPods:
		first, err := record.Read[nodes.WorkRecord](view, podsKey(p.stages[0].Name()))
		if err != nil {
			return unseenPods("the first stage")
		}
		checks = now.CheckPods(first)
	case ClaimPodAnswers:
		checks = now.CheckAnswers(gates)
	case ClaimPodEvents:
		checks = now.CheckEvents(gates)
	}
	r := conformance.JudgeChecks(
		reports.Result{Level: scenarios.Core, Evidence: []string{view.EvidenceFile(podsKey(stage.Name()))}},
		checks,
	)
	switch r.Verdict {
	case verdicts.Failed:
		r.Blame = verdicts.BlameAPIServer
	case verdicts.Passed:
		r.Details = []string{reports.Plural(len(checks), "check") + " of node agents and a deputy in pods"}
		if claim == ClaimPodAnswers {
			r.Details = append(r.Details, fmt.Sprintf("the longest time without an answer was %.1f s", now.LongestPause().Seconds()))
		}
	}
	return r
}

// unseenPods returns the result of a claim about pods of which nothing was recorded.
func unseenPods(place string) reports.Result {
	return reports.Result{
		Level:   scenarios.Core,
		Verdict: verdicts.Invalid,
		Blame:   verdicts.BlameEnvironment,
		Reason:  "nothing was seen of the pods on " + place,
	}
}

// podGates returns the states of the gate of the API servers that pods can have met on a stage: any of those that run beside each
// other.
func (p *Plan) podGates(stage *StagePlan) nodes.Gates {
	running := make([]bool, p.serverCount())
	for i := range running {
		running[i] = !p.stages[0].isOff()
	}
	for _, s := range p.stages {
		before := slices.Clone(running)
		running[s.Server] = !s.isOff()
		if s == stage {
			now := slices.Concat([]bool{running[s.Server]}, running)
			return nodes.Gates{Before: before, Now: slices.Compact(now)}
		}
	}
	return nodes.Gates{}
}

// podCluster is the cluster that pods work on: whichever of the API servers answers them, its audit log has the events.
type podCluster struct {
	*server.Server
	upgrade *Upgrade
}

// EventsBy implements nodes.Cluster.
func (c podCluster) EventsBy(user string) (all []auditv1.Event, err error) {
	for _, t := range c.upgrade.targets {
		events, err := t.EventsBy(user)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	return all, nil
}
