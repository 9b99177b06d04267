package surface

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// stage is an API server of a run, on the etcd of the stage before or, if it is the first of a sequence, on an empty one.
type stage struct {
	name    string
	options server.Options
	isFirst bool
	// baseline names the stage that this one is compared with; empty if it is compared with none.
	baseline string
}

// gate returns the state of the gate that the stage's server has.
func (s stage) gate() scenarios.Gate {
	return server.EffectiveGate(s.options.Effective(), s.options.Cell.Gate)
}

// plan compares surfaces.
type plan struct {
	stages   []stage
	requests int
	agents   int
	path     string // as it was written; empty if there is none
	cases    []product.Case
}

func hasGate(r local.Release) bool { return server.HasGate(r.Version) }

// plainServer returns the API server of a release with the gate in a state. Nothing of its defaults is changed for the sake of
// a run: it has no recorder, all its metrics and its own authorizers.
func plainServer(r local.Release, binaries *local.Binaries, gate scenarios.Gate) server.Options {
	return server.Options{
		Cell:    verdicts.Cell{Name: "surface", Provider: server.Local, Kubernetes: r.Version, Gate: gate},
		Release: r, Binaries: binaries, Plain: &server.Plain{},
	}
}

// planGates returns the stages of one release: the gate off, on, and off again, compared with the first.
func planGates(r local.Release, binaries *local.Binaries) (stages []stage) {
	const first = "gate-off"
	for _, at := range []stage{{name: first, isFirst: true}, {name: "gate-on", baseline: first}, {name: "gate-off-again", baseline: first}} {
		at.options = plainServer(r, binaries, scenarios.GateOff)
		if at.name == "gate-on" {
			at.options.Cell.Gate = scenarios.GateOn
		}
		stages = append(stages, at)
	}
	return stages
}

// planPath returns the stages of an upgrade path, behind those of the same path with the gate off everywhere. What a version
// adds is the same in both, so that each stage is compared with the one that has its place there.
func planPath(targets []server.Options) (stages []stage) {
	for i, o := range targets {
		o.Plain, o.Cell.Gate = &server.Plain{}, scenarios.GateOff
		if !server.HasGate(o.Effective()) {
			o.Cell.Gate = targets[i].Cell.Gate
		}
		o.Cell.Name = nameBaseline(o.Cell.Name)
		stages = append(stages, stage{name: o.Cell.Name, options: o, isFirst: i == 0})
	}
	for i, o := range targets {
		o.Plain = &server.Plain{}
		stages = append(stages, stage{name: o.Cell.Name, options: o, isFirst: i == 0, baseline: nameBaseline(o.Cell.Name)})
	}
	return stages
}

// nameBaseline returns the name of the stage with the gate off that a stage of a path is compared with.
func nameBaseline(stage string) string { return "baseline-" + stage }

func newPlan(stages []stage, requests, agents int) *plan {
	p := &plan{stages: stages, requests: requests, agents: agents}
	for _, s := range stages {
		if s.baseline == "" {
			continue
		}
		for _, c := range comparisons {
			if c.name == agentsComparison && agents == 0 {
				continue
			}
			p.cases = append(p.cases, product.NewCase(s.name, c.name, scenarios.Core))
		}
	}
	return p
}

// find returns the stage of a name.
func (p *plan) find(name string) stage {
	return p.stages[slices.IndexFunc(p.stages, func(s stage) bool { return s.name == name })]
}

// Cases implements product.Plan.
func (p *plan) Cases() []product.Case { return p.cases }

// Select implements product.Plan.
func (p *plan) Select(leaveOut func(product.Case) string) {
	for i, c := range p.cases {
		if why := leaveOut(c); why != "" {
			p.cases[i].NotRun = &product.NotRun{Cause: reports.CauseUser, Why: why}
		}
	}
}

// Run implements product.Plan.
func (p *plan) Run(ctx context.Context, log *record.Log, o product.Observer) (err error) {
	var s *server.Server
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	for _, at := range p.stages {
		if ctx.Err() != nil {
			return nil // Execute records the interruption, and what is left has no evidence
		}
		if s, err = at.start(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
		if err := p.runStage(ctx, s, at, log, o); err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
	}
	return nil
}

// start starts the stage's server in the place of the one before, on its etcd unless the stage is the first of a sequence.
func (s stage) start(ctx context.Context, before *server.Server) (*server.Server, error) {
	if !s.isFirst {
		return before, before.Restart(ctx, s.options)
	}
	if before != nil {
		if err := before.Stop(); err != nil {
			return nil, err
		}
	}
	return server.Start(ctx, s.options)
}

// runStage records the surface of one stage.
func (p *plan) runStage(ctx context.Context, s *server.Server, at stage, log *record.Log, o product.Observer) error {
	o.Say(fmt.Sprintf("%s: %s ready", at.name, s.Witness.GitVersion))
	surface, err := p.look(ctx, s, at)
	if err != nil {
		return err
	}
	if err := log.Append("surface/"+at.name, surface); err != nil {
		return err
	}
	for _, c := range p.cases {
		if c.Group == at.name && c.NotRun == nil {
			o.Done(c.ID)
		}
	}
	return nil
}
