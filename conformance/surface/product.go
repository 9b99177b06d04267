// Package surface compares an API server with the gate on, and off again, with the same one before, or along an upgrade path
// with the same path and the gate off: what it offers, what it stores, counts and logs, and what it needs. It answers what the production readiness review of KEP-5284 asks about API
// types, flags, metrics, objects and resources.
package surface

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/product"
)

// Product is the surface of an API server with the gate off, on, and off again.
var Product = product.Product{Name: "surface", Command: "surface", New: newFlags}

// flags are those of the product.
type flags struct {
	kubernetes string
	path       string
	requests   int
	agents     int
	binaries   local.Binaries
}

func newFlags(set *pflag.FlagSet) product.Flags {
	f := &flags{}
	set.StringVar(&f.kubernetes, "kubernetes", "", "version of the API server (default: the newest)")
	set.StringVar(&f.path, "path", "", "in place of one version, the stages of an upgrade path, such as 1.36,1.37,1.36-gate,1.37")
	set.IntVar(&f.requests, "requests", 100, "how many requests of each kind are sent on each stage")
	set.IntVar(&f.agents, "agents", 0, "how many agents watch on each stage, each a kubectl of the newest version that impersonates")
	f.binaries.RegisterFlags(set)
	f.binaries.RegisterSource(set)
	return f
}

// Plan implements product.Flags.
func (f *flags) Plan(i *product.Invocation) (product.Plan, error) {
	if f.requests < 1 {
		return nil, fmt.Errorf("--requests %d: expected at least 1", f.requests)
	}
	if f.agents < 0 || f.agents > maxAgents {
		return nil, fmt.Errorf("--agents %d: expected 0 to %d", f.agents, maxAgents)
	}
	f.binaries.Progress = i.Messages
	stages, err := f.planStages(i)
	if err != nil {
		return nil, err
	}
	p := newPlan(stages, f.requests, f.agents)
	p.path = f.path
	return p, nil
}

// release returns the version that the flags name.
func (f *flags) release(i *product.Invocation) (local.Release, error) {
	versions, err := f.binaries.ResolveFlag(context.Background(), i.Fact, f.kubernetes)
	if err != nil {
		return local.Release{}, err
	}
	return local.ParseRelease(versions[0])
}

// maxAgents keeps a mistyped number from filling the machine with processes.
const maxAgents = 200

// planStages returns the stages of the path, or of the one version.
func (f *flags) planStages(i *product.Invocation) ([]stage, error) {
	if f.path == "" {
		release, err := f.release(i)
		if err != nil {
			return nil, fmt.Errorf("--kubernetes: %w", err)
		}
		if !hasGate(release) {
			return nil, fmt.Errorf("--kubernetes %s: that version does not have the gate; expected 1.35 or newer", release.Minor)
		}
		return planGates(release, &f.binaries), nil
	}
	if f.kubernetes != "" {
		return nil, fmt.Errorf(
			"--kubernetes %s is given with --path, whose stages have versions of their own; leave one of them out",
			f.kubernetes,
		)
	}
	resolve := func(version string) (string, error) {
		return f.binaries.ResolveOne(context.Background(), i.Fact, version)
	}
	path, err := upgradepath.Parse(f.path, upgradepath.Options{Resolve: resolve})
	if err != nil {
		return nil, fmt.Errorf("--path: %w", err)
	}
	for i, s := range path.Stages {
		if s.Chain != "" || s.ReplacesNodes() {
			return nil, fmt.Errorf(
				"--path: stage %d, %s: expected a version and +gate or -gate; there are no nodes here, and the authorizers are the server's own",
				i+1,
				s,
			)
		}
	}
	targets, err := path.Targets(matrix.Matrix{Binaries: &f.binaries})
	if err != nil {
		return nil, fmt.Errorf("--path: %w", err)
	}
	return planPath(targets), nil
}
