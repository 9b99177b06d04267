// Package upgrade judges upgrade paths: API servers of other versions and gates, one after the other, on the same etcd.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Product is scenarios along an upgrade path.
var Product = product.Product{Name: conformance.UpgradeName, Command: "upgrade", New: newFlags}

// upgradeFlags are the flags of the product besides those that every product has.
type upgradeFlags struct {
	clusters         matrix.ClusterFlags
	path             string
	file             string
	highAvailability bool
	gateName         string
	scenarios        string
}

func newFlags(flags *pflag.FlagSet) product.Flags {
	f := &upgradeFlags{}
	flags.StringVar(&f.path, "path", "", "the stages, separated by commas")
	flags.StringVar(&f.file, "file", "", "a path file, such as ci/paths/kep-recipe.yaml")
	flags.StringVar(
		&f.gateName,
		"gate-name",
		"",
		"the feature gate that +gate and -gate of the stages are about (default "+server.GateName+")",
	)
	flags.StringVar(&f.scenarios, "scenarios", "", "folder of scenario files to use instead of the built-in ones; those with a setup count")
	flags.BoolVar(
		&f.highAvailability,
		"high-availability",
		false,
		"two API servers behind a balancer, or all of a cluster of kind with several, replaced one after the other under load",
	)
	f.clusters.Register(flags)
	return f
}

// Plan reads everything that can be wrong before anything is started.
func (f *upgradeFlags) Plan(i *product.Invocation) (product.Plan, error) {
	path, err := f.readPath(i)
	if err != nil {
		return nil, err
	}
	kubernetesVersions := sets.New(seq.Map(path.Stages, func(s upgradepath.Stage) string { return s.Kubernetes })...)
	for _, s := range path.Stages {
		if s.ReplacesNodes() {
			kubernetesVersions.Insert(s.Nodes)
		}
	}
	versions := sets.List(kubernetesVersions)
	base, err := f.clusters.Matrix(versions, i.Messages)
	if err != nil {
		return nil, err
	}
	texts, err := f.readTexts(i, path)
	if err != nil {
		return nil, err
	}
	plan, err := NewPlan(PlanOptions{Path: path, Texts: texts, Base: base, Seed: i.Seed})
	if err != nil {
		return nil, err
	}
	if i.Verifying() {
		return plan, plan.texts.CheckRecorded(*i.Recorded)
	}
	return plan, plan.texts.CheckSecrets()
}

// readTexts reads the scenarios. Of the built-in ones only those that name the gate of the path count if that is another than
// ConstrainedImpersonation: the others say nothing of it, and to pass them would look like a proof.
func (f *upgradeFlags) readTexts(i *product.Invocation, path *upgradepath.Path) (conformance.Texts, error) {
	texts, err := conformance.LoadInvocationTexts(i, f.scenarios)
	if err != nil || !path.HasOtherGate() || f.scenarios != "" {
		return texts, err
	}
	pathScenarios := texts.Set.Only(path.Names)
	if len(pathScenarios.Setups()) == 0 {
		return texts, fmt.Errorf(
			"the path is about the gate %s, and no built-in scenario is: name a folder of your own with --scenarios",
			path.Gate(),
		)
	}
	return texts.Only(pathScenarios), nil
}

func (f *upgradeFlags) readPath(i *product.Invocation) (*upgradepath.Path, error) {
	o := upgradepath.Options{
		HighAvailability: f.highAvailability, FeatureGate: f.gateName,
		Resolve: func(version string) (string, error) { return f.clusters.ResolveOne(i, version) },
	}
	switch {
	case (f.path == "") == (f.file == ""):
		return nil, errors.New("one of --path and --file is needed, such as --path 1.35+gate,1.36,1.35+gate")
	case f.path != "":
		return upgradepath.Parse(f.path, o)
	}
	data, err := i.ReadInput(f.file)
	if err != nil {
		return nil, err
	}
	return upgradepath.Load(f.file, data, o)
}

// PlanOptions are what a plan is made of.
type PlanOptions struct {
	// Path is what to walk. Scenarios without a setup of the path have no part in it.
	Path  *upgradepath.Path
	Texts conformance.Texts
	// Base is what the stages have in common: the provider, node images, programs.
	Base matrix.Matrix
	Seed int64
}

// Plan is scenarios along an upgrade path. Its parts are those of product.Plan.
type Plan struct {
	path   *upgradepath.Path
	texts  conformance.Texts
	seed   int64
	stages []*StagePlan
}

// NewPlan plans scenarios along a path. An error is for the user to mend.
func NewPlan(o PlanOptions) (*Plan, error) {
	set, err := Setups(o.Path, o.Texts.Set)
	if err != nil {
		return nil, err
	}
	p := &Plan{path: o.Path, texts: o.Texts.Only(set), seed: o.Seed}
	if p.stages, err = planStages(o.Path, set, o.Base); err != nil {
		return nil, err
	}
	return p, server.CheckAPIServers(seq.Map(p.stages, func(s *StagePlan) server.Options { return s.Target }))
}

// flows reports whether requests flow anywhere along the path.
func (p *Plan) flows() bool { return slices.ContainsFunc(p.stages, (*StagePlan).flows) }

// serverCount returns how many API servers there are at once.
func (p *Plan) serverCount() int {
	return 1 + slices.Max(seq.Map(p.stages, func(s *StagePlan) int { return s.Server }))
}

// hasBalancer reports whether the cluster has a balancer of its own, to which requests are sent.
func (p *Plan) hasBalancer() bool {
	return p.path.HighAvailability && p.stages[0].Target.Capabilities().Members
}

// works reports whether a setup works while a stage of the path is entered.
func (p *Plan) works(setup string) bool {
	return slices.ContainsFunc(p.stages, func(s *StagePlan) bool { return slices.Contains(s.Workloads, setup) })
}

// Cases returns the cases of all stages.
func (p *Plan) Cases() (cases []product.Case) {
	for _, s := range p.stages {
		cases = append(cases, s.cases()...)
	}
	return cases
}

// DescribeGroup implements product.GroupDescriber: the version and the gate of a stage, and the setups that are made there.
func (p *Plan) DescribeGroup(name string) string {
	i := slices.IndexFunc(p.stages, func(s *StagePlan) bool { return s.Name() == name })
	permissions := "nothing"
	if setups := p.stages[i].Made; len(setups) > 0 {
		permissions = strings.Join(setups, ", ")
	}
	return conformance.DescribeTarget(p.stages[i].Target) + ", makes " + permissions
}

// Select leaves out cases. The path is gone along all the same.
func (p *Plan) Select(leaveOut func(product.Case) (why string)) {
	for _, s := range p.stages {
		for i, c := range s.cases() {
			why := leaveOut(c)
			switch {
			case why == "":
			case i < len(s.Items):
				s.Items[i].Fate, s.Items[i].Why = conformance.LeftOut, why
			default:
				claim := &s.Claims[i-len(s.Items)]
				claim.Fate, claim.Why = conformance.LeftOut, why
			}
		}
	}
}

// Run goes along the path and records what is seen.
func (p *Plan) Run(ctx context.Context, log *record.Log, observer product.Observer) error {
	if err := p.texts.Record(log); err != nil {
		return err
	}
	u := newUpgrade(p, conformance.Output{Seed: p.seed, Log: log, Observer: observer})
	u.Walk(ctx)
	return u.Err
}

// Judge returns the verdict on a case.
func (p *Plan) Judge(id string, view record.View) reports.Result {
	for _, stage := range p.stages {
		for _, item := range stage.Items {
			if id == stage.Name()+"/"+item.Scenario.ID {
				return conformance.JudgeScenario(item.Scenario, stage.Target.Cell, view)
			}
		}
		for _, item := range stage.Claims {
			if id == stage.Name()+"/"+item.name(stage.Name()) {
				return p.judgeClaim(stage, item, view)
			}
		}
	}
	return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness, Reason: "there is no such case"}
}
