package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/scenarios"
)

// Upgrade is one walk along a path.
type Upgrade struct {
	Stages []*Stage
	Err    error // set for what the user has to mend: a *usage.Error

	plan   *Plan
	output *conformance.Output
	// What setups have, by their names: for the scenarios, and under other names for
	// the requests that flow, which would otherwise fill the caches of the first.
	kept, flowing map[string]*replay.KeptSetup
	writer        *writer

	// Of each API server: itself, the mark of its recorder before the stage, and what it has been.
	targets   []*server.Server
	marks     []uint64
	histories [][]FlowStay
	balancer  *balancer.Balancer // nil where no requests flow, or straight
	// pods work through the whole path; nil where there are no nodes. They have rested since a time.
	pods   *nodes.Workloads
	rested time.Time
}

// Stage is one stay. The Err of its cell says why the stage was not reached, or what broke on it.
type Stage struct {
	*StagePlan
	Cell *conformance.Cell
	// Down is from when the API server before was told to end until this one was ready.
	Down time.Duration

	flow *FlowRecord
}

// newUpgrade prepares a walk along a planned path.
func newUpgrade(p *Plan, o conformance.Output) *Upgrade {
	u := &Upgrade{
		plan:    p,
		output:  &o,
		kept:    map[string]*replay.KeptSetup{},
		flowing: map[string]*replay.KeptSetup{},
		writer:  newWriter(o.Seed),
	}
	for _, s := range p.stages {
		u.Stages = append(u.Stages, &Stage{StagePlan: s, Cell: conformance.NewCell(s.CellPlan, u.output)})
	}
	return u
}

func (u *Upgrade) say(format string, args ...any) {
	if u.output.Observer.Say != nil {
		u.output.Observer.Say(fmt.Sprintf(format, args...))
	}
}

// Walk goes along the path to its end, a stage that cannot be entered, or until ctx ends. Then the cluster is stopped.
func (u *Upgrade) Walk(ctx context.Context) {
	broken := u.prepare(ctx)
	for _, stage := range u.Stages {
		if broken == nil {
			broken = u.stage(ctx, stage)
			continue
		}
		stage.Cell.Err = fmt.Errorf("not reached: %w", broken)
		u.finish(time.Now(), stage)
	}
	if err := server.StopAll(u.balancer, u.targets); err != nil {
		u.say("stopping: %v", err)
	}
}

// prepare finds or makes what the clusters of all stages need, so that no path ends half way for the lack of a program.
func (u *Upgrade) prepare(ctx context.Context) error {
	for _, stage := range u.Stages {
		err := stage.prepare(ctx)
		if usage.Is(err) {
			u.Err = fmt.Errorf("stage %d, %s: %w", stage.Index+1, stage.Name(), err)
		}
		if err != nil {
			return fmt.Errorf("stage %d, %s, cannot be prepared: %w", stage.Index+1, stage.Name(), err)
		}
	}
	return nil
}

// prepare finds or makes what the cluster of the stage needs, its nodes included.
func (s *StagePlan) prepare(ctx context.Context) error {
	if err := s.Target.Prepare(ctx); err != nil || s.Nodes == "" {
		return err
	}
	o, err := s.nodeTarget()
	if err != nil {
		return err
	}
	return o.Prepare(ctx)
}

// finish ends a stage, whose scenarios have run since a time.
func (u *Upgrade) finish(since time.Time, stage *Stage) {
	stage.Cell.Ready += stage.Down
	stage.Cell.Finish(since, stage.Cell.Err)
	for _, item := range stage.Claims {
		if done := u.output.Observer.Done; done != nil && item.Fate == conformance.Run {
			done(stage.Name() + "/" + item.name(stage.Name()))
		}
	}
}

// stage enters a stage and stays on it. The error says why the path ends here.
func (u *Upgrade) stage(ctx context.Context, stage *Stage) error {
	begin := time.Now()
	ends := func(what string, err error) error {
		stage.Cell.Err = err
		u.say("%s: %s%v", stage.Name(), what, err)
		u.finish(begin, stage)
		return fmt.Errorf("the path stopped at stage %d, %s", stage.Index+1, stage.Name())
	}
	if err := u.enter(ctx, stage); err != nil {
		if usage.Is(err) {
			u.Err = fmt.Errorf("stage %d, %s: %w", stage.Index+1, stage.Name(), err)
		}
		return ends("could not be entered: ", err)
	}
	if err := u.watchPods(ctx, stage); err != nil {
		return ends("", err)
	}
	t := u.targets[stage.Server]
	stage.Cell.Witness = t.Witness
	u.say(
		"%s: %s ready in %.1f s, gate %s",
		stage.Name(),
		t.Witness.GitVersion,
		time.Since(begin).Seconds(),
		describeGateFound(t.Facts, u.plan.path),
	)
	begin = time.Now()
	if err := u.stay(ctx, stage); err != nil {
		return ends("", err)
	}
	u.finish(begin, stage)
	return nil
}

// describeGateFound names the state of the gate that a path is about.
func describeGateFound(facts scenarios.Facts, path *upgradepath.Path) string {
	if path.HasOtherGate() {
		return path.Gate() + " " + string(facts.FeatureGates[path.Gate()])
	}
	return string(facts.Gate)
}

// stay runs the scenarios of a stage, and records what is seen besides them.
func (u *Upgrade) stay(ctx context.Context, stage *Stage) (err error) {
	t := u.targets[stage.Server]
	run, err := replay.New(t)
	if err != nil {
		return err
	}
	// What flowed until now is not of the first scenario.
	if err := t.Rebase(ctx); err != nil {
		return err
	}
	for _, item := range stage.Items {
		if err := u.make(ctx, run, stage, item.Scenario); err != nil {
			return err
		}
	}
	for _, s := range stage.Runs() {
		stage.Cell.Run(ctx, run, s, u.kept[s.Setup])
	}
	e := StageRecord{
		DownSeconds: stage.Down.Seconds(),
		Verbs:       t.Verbs(u.marks[stage.Server]),
		Neighbours:  u.countNeighbours(stage),
		Flow:        stage.flow,
	}
	if e.Writes, err = u.writer.write(ctx, run, stage.Name()); err != nil {
		return fmt.Errorf("writing on the stage: %w", err)
	}
	if e.Objects, err = u.readObjects(ctx, run, stage); err != nil {
		return err
	}
	if err := e.check(stage.StagePlan, u.output.Log.View()); err != nil {
		return fmt.Errorf("what was recorded contradicts itself: %w", err)
	}
	if err := u.output.Log.Append(stageKey(stage.Name()), e); err != nil {
		return err
	}
	return ctx.Err()
}

// readObjects reads the objects of all setups that were made by now.
func (u *Upgrade) readObjects(ctx context.Context, run *replay.Replayer, stage *Stage) (states []ObjectState, err error) {
	for _, name := range u.plan.texts.Set.Setups() {
		kept, known := u.kept[name]
		if !known {
			continue
		}
		objects, err := run.Read(ctx, kept)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if !isControlled(stage.Target, o.Path) {
				states = append(states, ObjectState{Path: o.Path, Body: string(o.Body)})
			}
		}
	}
	return states, nil
}

// isControlled reports whether the controllers of a cluster with nodes write to an object: to a Node that no kubelet
// speaks for, and to the pods on it. What an upgrade does to one of these cannot be told apart.
func isControlled(o server.Options, path string) bool {
	hasControllers := o.Capabilities().Nodes
	isNodeOrPod := strings.HasPrefix(path, "/api/v1/nodes/") || strings.Contains(path, "/pods/")
	return hasControllers && isNodeOrPod
}

// What the names of a setup are made unique from, besides its own: those that flow are others.
const pathNames, flowNames = "path", "flow"

// make makes the objects and tokens of a scenario's setup, if it is made on this stage and is not yet.
func (u *Upgrade) make(ctx context.Context, run *replay.Replayer, stage *Stage, s *scenarios.Scenario) error {
	if _, made := u.kept[s.Setup]; made || !slices.Contains(stage.Made, s.Setup) {
		return nil
	}
	kept, err := run.Keep(ctx, s, scenarios.Suffix(u.output.Seed, pathNames, s.Setup))
	if err != nil {
		return err
	}
	u.kept[s.Setup] = kept
	if u.plan.works(s.Setup) {
		u.flowing[s.Setup], err = run.Keep(ctx, s, scenarios.Suffix(u.output.Seed, flowNames, s.Setup))
	}
	return err
}

// countNeighbours counts the access reviews that reached the recorders of the other servers during a stage.
func (u *Upgrade) countNeighbours(stage *Stage) map[string]map[string]int {
	out := map[string]map[string]int{}
	for i, t := range u.targets {
		if i != stage.Server {
			history := u.histories[i]
			out[history[len(history)-1].Cell] = t.Verbs(u.marks[i])
		}
	}
	return out
}
