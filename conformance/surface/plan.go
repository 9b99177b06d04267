package surface

import (
	"context"
	"errors"
	"fmt"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// stage is a state of the gate that the API server is in, one after the other on the same etcd.
type stage struct {
	name string
	gate scenarios.Gate
}

// stages are those of every run. The first is what the others are compared with.
var stages = []stage{{"gate-off", scenarios.GateOff}, {"gate-on", scenarios.GateOn}, {"gate-off-again", scenarios.GateOff}}

// plan compares surfaces.
type plan struct {
	release  local.Release
	binaries *local.Binaries
	requests int
	cases    []product.Case
}

func hasGate(r local.Release) bool { return server.HasGate(r.Version) }

func newPlan(r local.Release, binaries *local.Binaries, requests int) *plan {
	p := &plan{release: r, binaries: binaries, requests: requests}
	for _, s := range stages[1:] {
		for _, c := range comparisons {
			p.cases = append(p.cases, product.NewCase(s.name, c.name, scenarios.Core))
		}
	}
	return p
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

// options returns the API server with the gate in a state. Nothing of its defaults is changed for the sake of a run: it has
// no recorder, all its metrics and its own authorizers.
func (p *plan) options(gate scenarios.Gate) server.Options {
	return server.Options{
		Cell:    verdicts.Cell{Name: "surface", Provider: server.Local, Kubernetes: p.release.Version, Gate: gate},
		Release: p.release, Binaries: p.binaries, Plain: &server.Plain{},
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
	for i, at := range stages {
		if ctx.Err() != nil {
			return nil // Execute records the interruption, and what is left has no evidence
		}
		if i == 0 {
			s, err = server.Start(ctx, p.options(at.gate))
		} else {
			err = s.Restart(ctx, p.options(at.gate))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
		if err := p.runStage(ctx, s, at, log, o); err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
	}
	return nil
}

// runStage records the surface in one state of the gate.
func (p *plan) runStage(ctx context.Context, s *server.Server, at stage, log *record.Log, o product.Observer) error {
	o.Say(fmt.Sprintf("%s: %s ready", at.name, s.Witness.GitVersion))
	seen, err := p.look(ctx, s, at.gate)
	if err != nil {
		return err
	}
	if err := log.Append("surface/"+at.name, seen); err != nil {
		return err
	}
	for _, c := range p.cases {
		if c.Group == at.name && c.NotRun == nil {
			o.Done(c.ID)
		}
	}
	return nil
}
