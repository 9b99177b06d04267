// Package upgrade takes a cluster along an upgrade path: API servers of other versions and gates on the same etcd.
package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// Upgrade is one walk along a path.
type Upgrade struct {
	Path   *upgradepath.Path // what is walked, Stages its stages with what was seen on them
	Stages []*Stage
	Err    error // set for what the user has to mend: a *usage.Error

	set    *scenarios.Set
	seed   int64
	events func(conformance.Event)
	// What setups have, by their names: for the scenarios, and under other names for
	// the requests that flow, which would otherwise fill the caches of the first.
	kept, flowing map[string]*replay.Kept

	// Of each API server: itself, the mark of its recorder before the stage, and what it has been.
	targets   []*server.Server
	marks     []uint64
	histories [][]reports.FlowStay
	balancer  *balancer.Balancer // nil where no requests flow, or straight
}

const servers = 2

// Stage is one stay, a cell of the report. Its Err says why the stage was not reached, or what broke on it.
type Stage struct {
	*conformance.Cell
	// Index is that of the path's stage, Server which API server is replaced: 0 without high availability.
	Index, Server int
	Fault         upgradepath.Fault // what goes wrong on the way here
	Made          []string          // the setups that are made on this stage
	// Down is from when the API server before was told to end until this one was ready.
	Down time.Duration
	// Evidence is what was seen besides the scenarios; nil if the stage was not reached.
	Evidence *reports.StageEvidence

	flow *reports.FlowEvidence
}

// New plans a walk. The set must hold the scenarios of the path's setups and no others. base is as for Path.Targets.
// An error is the user's to mend.
func New(p *upgradepath.Path, set *scenarios.Set, base matrix.Matrix, seed int64, events func(conformance.Event)) (*Upgrade, error) {
	targets, err := p.Targets(base)
	if err != nil {
		return nil, err
	}
	u := &Upgrade{Path: p, set: set, seed: seed, events: events, kept: map[string]*replay.Kept{}, flowing: map[string]*replay.Kept{}}
	for i, o := range targets {
		for replica := range u.servers() {
			stage := &Stage{Index: i, Server: replica, Fault: p.Stages[i].Fault}
			asked := o
			if p.HighAvailability {
				asked.Cell.Name += "-" + string(rune('a'+replica))
			}
			if err := u.plan(stage, asked); err != nil {
				return nil, err
			}
			u.Stages = append(u.Stages, stage)
		}
	}
	return u, nil
}

// Setups returns the scenarios of the setups that take part in a path.
func Setups(p *upgradepath.Path, all *scenarios.Set) (*scenarios.Set, error) {
	known, named := all.Setups(), slices.Clone(p.Setups)
	for _, stage := range p.Stages {
		named = append(named, stage.Make...)
	}
	for _, name := range named {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("path %s: there is no setup %q; there are %s", p.Name, name, strings.Join(known, ", "))
		}
	}
	return all.Only(func(s *scenarios.Scenario) bool { return p.TakesPart(s.Setup) }), nil
}

// plan picks for a stage at most one scenario of each setup: a second would meet what the first left in the caches.
func (u *Upgrade) plan(stage *Stage, asked server.Options) error {
	facts := server.ExpectedFacts(asked)
	plan := conformance.CellPlan{Target: asked}
	runs := map[string]string{}
	for _, s := range u.set.All() {
		item := conformance.Item{Scenario: s}
		ok, _, why := s.Selected(facts)
		switch made := u.Path.MadeOn(s.Setup); {
		case !ok:
			item.Fate, item.Why = conformance.NotSelected, why
		case made > stage.Index:
			item.Fate, item.Why = conformance.NotMade, fmt.Sprintf("the setup %s is made on stage %d", s.Setup, made+1)
		default:
			item.Fate = conformance.Run
			if other := runs[s.Setup]; other != "" {
				return fmt.Errorf("stage %d, %s: both %s and %s of the setup %s are for it", stage.Index+1, asked.Cell.Name, other, s.ID, s.Setup)
			}
			runs[s.Setup] = s.ID
		}
		plan.Items = append(plan.Items, item)
	}
	if len(runs) == 0 {
		return fmt.Errorf("path %s: nothing would run on stage %d, %s", u.Path.Name, stage.Index+1, asked.Cell.Name)
	}
	stage.Cell = conformance.NewCell(plan)
	stage.Made = seq.Filter(u.set.Setups(), func(name string) bool { return u.Path.MadeOn(name) == stage.Index && stage.Server == 0 })
	return nil
}

func (u *Upgrade) flows() bool {
	return u.Path.HighAvailability || slices.ContainsFunc(u.Path.Stages, func(l upgradepath.Stage) bool { return l.Fault != "" })
}

func (u *Upgrade) servers() int {
	if u.Path.HighAvailability {
		return servers
	}
	return 1
}

// Walk goes along the path to its end, a stage that cannot be entered, or until ctx ends. Then the cluster is stopped.
func (u *Upgrade) Walk(ctx context.Context) {
	var broken error
	for _, stage := range u.Stages {
		if broken == nil {
			broken = u.stage(ctx, stage)
			continue
		}
		stage.Err = fmt.Errorf("not reached: %w", broken)
		u.finish(time.Now(), stage)
	}
	if err := server.StopAll(u.balancer, u.targets); err != nil {
		u.events(conformance.Event{Text: "stopping: " + err.Error()})
	}
}

// finish ends a stage, whose scenarios have run since a time.
func (u *Upgrade) finish(since time.Time, stage *Stage) { stage.Finish(since, stage.Err, u.events) }

// stage enters a stage and stays on it. The error says why the path ends here.
func (u *Upgrade) stage(ctx context.Context, stage *Stage) error {
	name := stage.Plan.Target.Cell.Name
	begin := time.Now()
	ends := func(what string, err error) error {
		stage.Err = err
		u.events(conformance.Event{Text: fmt.Sprintf("%s: %s%v", name, what, err)})
		u.finish(begin, stage)
		return fmt.Errorf("the path stopped at stage %d, %s", stage.Index+1, name)
	}
	if err := u.enter(ctx, stage); err != nil {
		if usage.Is(err) {
			u.Err = fmt.Errorf("stage %d, %s: %w", stage.Index+1, name, err)
		}
		return ends("could not be entered: ", err)
	}
	t := u.targets[stage.Server]
	stage.Witness = t.Witness
	u.events(conformance.Event{Text: fmt.Sprintf("%s: %s ready in %.1f s, gate %s", name, stage.Witness.GitVersion, time.Since(begin).Seconds(), t.Facts.Gate)})
	begin = time.Now()
	if err := u.stay(ctx, stage); err != nil {
		return ends("", err)
	}
	u.finish(begin, stage)
	return nil
}

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
	for _, item := range stage.Plan.Items {
		if err := u.make(ctx, run, stage, item.Scenario); err != nil {
			return err
		}
	}
	for _, s := range stage.Plan.Runs() {
		stage.Run(ctx, run, s, u.kept[s.Setup], u.seed, u.events)
	}
	evidence := &reports.StageEvidence{Cell: t.Cell.Name, Verbs: t.Verbs(u.marks[stage.Server]), Neighbours: u.neighbours(stage), Flow: stage.flow}
	if evidence.Objects, err = u.objects(ctx, run, stage); err != nil {
		return err
	}
	if stage.Evidence, err = evidence.Redacted(); err != nil {
		return err
	}
	return ctx.Err()
}

func (u *Upgrade) objects(ctx context.Context, run *replay.Replayer, stage *Stage) (states []reports.ObjectState, err error) {
	for _, name := range u.set.Setups() {
		kept, ok := u.kept[name]
		if !ok {
			continue
		}
		objects, err := run.Read(ctx, kept)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if !controlled(stage.Plan.Target, o.Path) {
				states = append(states, reports.ObjectState{Path: o.Path, Body: string(o.Body)})
			}
		}
	}
	return states, nil
}

// controlled reports whether the controllers of a cluster with nodes write to an object: to a Node that no kubelet
// speaks for, and to the pods on it. What an upgrade does to one of these cannot be told apart.
func controlled(o server.Options, path string) bool {
	ofNode := strings.HasPrefix(path, "/api/v1/nodes/") || strings.Contains(path, "/pods/")
	return ofNode && o.Capabilities().Nodes
}

func (u *Upgrade) make(ctx context.Context, run *replay.Replayer, stage *Stage, s *scenarios.Scenario) error {
	if _, made := u.kept[s.Setup]; made || !slices.Contains(stage.Made, s.Setup) {
		return nil
	}
	kept, err := run.Keep(ctx, s, scenarios.Suffix(u.seed, pathNames, s.Setup))
	if err != nil {
		return err
	}
	u.kept[s.Setup] = kept
	if u.mayFlow(s) {
		u.flowing[s.Setup], err = run.Keep(ctx, s, scenarios.Suffix(u.seed, flowNames, s.Setup))
	}
	return err
}

// Options are what one upgrade path needs.
type Options struct {
	conformance.Common
	// Path is what to walk. Scenarios without a setup of the path have no part in it.
	Path *upgradepath.Path
	// Base is what the stages have in common: the provider, node images, programs.
	Base matrix.Matrix
}

// Plan checks everything that can be wrong before anything is started, and says how many scenarios will run.
func (o *Options) Plan() (walk *Upgrade, runs int, err error) {
	if o.Texts.Set, err = Setups(o.Path, o.Texts.Set); err != nil {
		return nil, 0, err
	}
	if walk, err = New(o.Path, o.Texts.Set, o.Base, o.Seed, o.Events); err != nil {
		return nil, 0, err
	}
	return walk, seq.Sum(walk.Stages, func(stage *Stage) int { return stage.Plan.Count(conformance.Run) }), nil
}

// Asked is of the report of a planned path what was asked for.
func (o *Options) Asked(walk *Upgrade) *reports.PathReport {
	stages := seq.Map(walk.Stages, func(stage *Stage) reports.PathStage {
		return reports.PathStage{Cell: stage.Plan.Target.Cell.Name, Fault: string(stage.Fault), Made: stage.Made}
	})
	return &reports.PathReport{
		Name: o.Path.Name, Description: o.Path.Description, HighAvailability: o.Path.HighAvailability,
		Stages: stages, Evidence: walk.expected(),
	}
}

// expected says of each stage what there will be evidence of: objects, neighbours, and what flows by which servers.
func (u *Upgrade) expected() (all []*reports.StageEvidence) {
	first, flowing := map[string]*scenarios.Scenario{}, map[string]string{}
	for _, s := range slices.Backward(u.set.All()) {
		first[s.Setup] = s
	}
	histories := make([][]reports.FlowStay, u.servers())
	for _, stage := range u.Stages {
		o := stage.Plan.Target
		histories[stage.Server] = append(histories[stage.Server], reports.FlowStay{Cell: o.Cell.Name})
		e := &reports.StageEvidence{Cell: o.Cell.Name, Neighbours: map[string]map[string]int{}}
		if stage.Index > 0 && (u.Path.HighAvailability || stage.Fault != "") {
			e.Flow = &reports.FlowEvidence{Suffixes: maps.Clone(flowing), Servers: seq.Map(histories, slices.Clone)}
		}
		for i, h := range histories {
			if i != stage.Server && len(h) > 0 {
				e.Neighbours[h[len(h)-1].Cell] = nil
			}
		}
		for _, name := range u.set.Setups() {
			if u.Path.MadeOn(name) > stage.Index {
				continue
			}
			s := first[name]
			if u.mayFlow(s) {
				flowing[name] = scenarios.Suffix(u.seed, flowNames, name)
			}
			bound, _ := s.Bind(scenarios.Suffix(u.seed, pathNames, name))
			for _, at := range replay.KeptPaths(bound) {
				if !controlled(o, at) {
					e.Objects = append(e.Objects, reports.ObjectState{Path: at})
				}
			}
		}
		all = append(all, e)
	}
	return all
}

// What the names of a setup are made unique from, besides its own: those that flow are others.
const pathNames, flowNames = "path", "flow"

// mayFlow says whether the requests of a setup can be sent all the time.
func (u *Upgrade) mayFlow(s *scenarios.Scenario) bool {
	return u.flows() && s.Requires.Chain == u.Stages[0].Plan.Target.Chain && len(s.Steps) == 1
}

// Execute goes along a planned path and makes the report. What was not run is invalid, for the reason that ended it.
func Execute(ctx context.Context, o Options, walk *Upgrade) (*conformance.Recorded, error) {
	r := o.Begin(walk.Stages[0].Plan.Target.Cell.Provider)
	walk.Walk(ctx)
	if walk.Err != nil {
		return nil, walk.Err
	}
	path := o.Asked(walk)
	path.Evidence = nil
	for i, stage := range walk.Stages {
		cell, evidence := stage.Report()
		cell.ReadySeconds += stage.Down.Seconds()
		r.Add(cell, evidence)
		path.Stages[i].DownSeconds = stage.Down.Seconds()
		if stage.Evidence != nil {
			path.Evidence = append(path.Evidence, stage.Evidence)
		}
	}
	r.Report.Path = path
	o.Complete(r, nil)
	return r, nil
}
