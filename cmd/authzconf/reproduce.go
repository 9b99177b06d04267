package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/surface"
	"github.com/authzconf/authzconf/conformance/upgrade"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/findings"
)

type reproduceFlags struct {
	matrix matrix.Matrix
	seed   int64
}

func newReproduce(flags *reproduceFlags) *cobra.Command {
	version := matrix.Newest()
	c := commandWith("reproduce [ID]", func(c *cobra.Command, args []string) error {
		all, err := findings.Load()
		if err != nil {
			return invalid(err)
		}
		if len(args) == 0 {
			return renderTable(c.OutOrStdout(), "findings", all, 0)
		}
		f, err := findFinding(all, args[0])
		if err != nil {
			return err
		}
		if minors := matrix.Minors(); slices.Contains(minors, version) && slices.Index(minors, version) < slices.Index(minors, f.Since) {
			return invalid(fmt.Errorf("%s could not be tried on Kubernetes %s: the finding exists since %s; nothing was started", f.ID, version, f.Since))
		}
		flags.matrix = matrix.Matrix{
			Provider: "local", Kubernetes: []string{version}, Gates: matrix.Gates{matrix.GateBoth}, Binaries: binaries(c),
		}
		return flags.run(c, f)
	})
	c.Flags().StringVar(&version, "kubernetes", version, "the version to try it on, of "+matrix.Known())
	seedFlag(c, &flags.seed, "the names that are made unique")
	programFlags(c.Flags())
	return c
}

// findFinding returns the finding that has an ID, or a row of docs/divergences.md.
func findFinding(all []findings.Finding, id string) (*findings.Finding, error) {
	if i := slices.IndexFunc(all, func(f findings.Finding) bool { return f.ID == id || f.Row == id }); i >= 0 {
		return &all[i], nil
	}
	hint := "authzconf reproduce lists them"
	if suggestions := nearest(id, seq.Map(all, func(f findings.Finding) string { return f.ID })); len(suggestions) > 0 {
		hint = "the nearest are " + strings.Join(suggestions, ", ") + "; " + hint
	}
	return nil, &usage.Error{Problem: fmt.Sprintf("there is no finding %q", id), Hint: hint}
}

type reproduced struct {
	Cell, Scenario string
	Seen           findings.Occurrence
	Why            string
}

func (f *reproduceFlags) run(c *cobra.Command, finding *findings.Finding) error {
	try := f.tryScenarios
	switch {
	case finding.Path != "":
		try = f.tryPath
	case finding.Memory:
		try = f.tryMemory
	}
	tries, err := try(c, finding)
	if err != nil {
		return err
	}
	out := concludeTries(tries)
	err = render(c.OutOrStdout(), "reproduced", struct {
		*findings.Finding
		Tried      []reproduced
		Seen       findings.Occurrence
		Kubernetes string
	}{finding, tries, out, f.matrix.Kubernetes[0]})
	if err != nil {
		return invalid(err)
	}
	return exitWith(
		map[findings.Occurrence]int{findings.Happens: exitPassed, findings.Gone: exitFailed, findings.Unclear: exitInvalid}[out],
	)
}

// concludeTries returns what all tries show together. One is enough to show that the finding still happens, and all are
// needed to show that it does not.
func concludeTries(tries []reproduced) findings.Occurrence {
	for _, outcome := range []findings.Occurrence{findings.Happens, findings.Unclear} {
		if slices.ContainsFunc(tries, func(t reproduced) bool { return t.Seen == outcome }) {
			return outcome
		}
	}
	return findings.Gone
}

// execute runs a plan of a product, without a report.
func (f *reproduceFlags) execute(c *cobra.Command, p product.Product, plan product.Plan) (*product.RunResult, error) {
	invocation := product.NewInvocation(nil, suiteVersion(), c.ErrOrStderr())
	invocation.Seed = f.seed
	show := newProductProgress(c.ErrOrStderr(), plan.Cases(), false)
	defer show.end()
	result, err := product.Execute(c.Context(), product.Run{
		PreparedRun: &product.PreparedRun{Product: p, Plan: plan}, Invocation: invocation, Command: commandLine,
		Say: show.say, Status: show.showStatus, Judged: show.addResult,
	})
	return result, invalid(err)
}

// tryScenarios runs the scenarios of a finding, and no others.
func (f *reproduceFlags) tryScenarios(c *cobra.Command, finding *findings.Finding) (tries []reproduced, err error) {
	mended, err := finding.Mended()
	if err != nil {
		return nil, invalid(err)
	}
	plan, err := f.planScenarios(finding)
	if err != nil {
		return nil, err
	}
	result, err := f.execute(c, conformance.Product, plan)
	if err != nil {
		return nil, err
	}
	for _, cell := range plan.CellPlans() {
		for _, item := range cell.Items {
			if item.Fate != conformance.Run && item.Fate != conformance.Unsupported {
				continue
			}
			t := reproduced{Cell: cell.Target.Cell.Name, Scenario: item.Scenario.ID}
			result, evidence, err := judgeItem(result.Log.View(), t.Cell, item)
			if err != nil {
				return nil, invalid(err)
			}
			t.Seen, t.Why = finding.Judge(result, evidence, mended)
			tries = append(tries, t)
		}
	}
	return tries, nil
}

// planScenarios plans only the scenarios of a finding.
func (f *reproduceFlags) planScenarios(finding *findings.Finding) (*conformance.Plan, error) {
	texts, err := conformance.LoadTexts("")
	if err != nil {
		return nil, invalid(err)
	}
	f.matrix.FeatureGates = requiredGates(finding, texts)
	cells, err := f.matrix.Cells()
	if err != nil {
		return nil, err
	}
	plan := conformance.NewPlan(conformance.PlanOptions{Texts: texts, Cells: cells, Seed: f.seed})
	plan.Select(func(c product.Case) string {
		if slices.Contains(finding.Scenarios, c.Name) {
			return ""
		}
		return "not of the finding"
	})
	plan.DropIdle()
	return plan, nil
}

// requiredGates returns the feature gates that the scenarios of a finding need in addition to ConstrainedImpersonation,
// and whether they have to be on. Such scenarios run only if the gates are requested.
func requiredGates(finding *findings.Finding, texts conformance.Texts) map[string]bool {
	gates := map[string]bool{}
	for _, id := range finding.Scenarios {
		if s, isThere := texts.Set.Get(id); isThere {
			for name, state := range s.Requires.FeatureGates {
				gates[name] = state == scenarios.GateOn
			}
		}
	}
	return gates
}

// judgeItem returns the result of a planned scenario on a cell and its evidence, which is nil if the cell does not
// support the scenario.
func judgeItem(view record.View, cell string, item conformance.Item) (verdicts.Result, *verdicts.Evidence, error) {
	if item.Fate == conformance.Unsupported {
		return verdicts.Result{Scenario: item.Scenario.ID, Cell: cell, Verdict: verdicts.NotSupported, Reason: item.Why}, nil, nil
	}
	evidence, err := conformance.ReadEvidence(view, cell, item.Scenario.ID)
	if err != nil {
		return verdicts.Result{}, nil, err
	}
	return verdicts.Judge(item.Scenario, evidence), evidence, nil
}

// tryPath runs the upgrade path of a finding. The result depends on timing, so it proves nothing if the finding does
// not show.
func (f *reproduceFlags) tryPath(c *cobra.Command, finding *findings.Finding) ([]reproduced, error) {
	text, err := findings.Files.ReadFile(finding.Path)
	if err != nil {
		return nil, invalid(err)
	}
	p, err := upgradepath.Load(finding.Path, text, upgradepath.Options{})
	if err != nil {
		return nil, invalid(err)
	}
	version := f.matrix.Kubernetes[0]
	for i := range p.Stages {
		p.Stages[i].Kubernetes = version
	}
	texts, err := conformance.LoadTexts("")
	if err != nil {
		return nil, invalid(err)
	}
	base := matrix.Matrix{Provider: "local", Kubernetes: []string{version}, Binaries: f.matrix.Binaries}
	plan, err := upgrade.NewPlan(upgrade.PlanOptions{Path: p, Texts: texts, Base: base, Seed: f.seed})
	if err != nil {
		return nil, err
	}
	result, err := f.execute(c, upgrade.Product, plan)
	if err != nil {
		return nil, err
	}
	t := reproduced{
		Cell:     version,
		Scenario: finding.Path,
		Seen:     findings.Unclear,
		Why: "it was not seen in " + reports.Plural(len(p.Stages)-1, "restart") +
			", which proves nothing: it depends on which permissions are read first",
	}
	switch result.Report.Outcome.ExitCode {
	case exitFailed:
		t.Seen, t.Why = findings.Happens, ""
	case exitInvalid:
		t.Why = "nothing could be judged, after " + result.Report.Finished.Sub(result.Report.Started).Round(time.Second).String()
	}
	return []reproduced{t}, nil
}

// tryMemory measures how much memory an API server keeps for users that were impersonated.
func (f *reproduceFlags) tryMemory(c *cobra.Command, _ *findings.Finding) ([]reproduced, error) {
	release, err := local.ParseRelease(f.matrix.Kubernetes[0])
	if err != nil {
		return nil, invalid(err)
	}
	m, err := surface.MeasureRemembered(c.Context(), release, f.matrix.Binaries)
	if err != nil {
		return nil, invalid(err)
	}
	t := reproduced{Cell: release.Minor, Scenario: "heap", Seen: findings.Unclear}
	t.Why = fmt.Sprintf(
		"%s with %d KiB of headers in all made the heap grow by %d KiB; %d %% of it was held when all must be forgotten, %d %% after one more",
		reports.Plural(m.Entries, "impersonation"),
		m.Sent>>10,
		m.Growth()>>10,
		m.Held(),
		m.Rest(),
	)
	switch {
	case m.IsUnbounded() && m.IsHeld():
		t.Seen = findings.Happens
	case !m.IsUnbounded() && !m.IsHeld():
		t.Seen = findings.Gone
	}
	return []reproduced{t}, nil
}
