// Package conformance judges what API servers do in scenarios: on cells, which are control planes of some version and
// state of the gate.
package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Product is scenarios on the cells of a matrix.
var Product = product.Product{Name: "conformance", Command: "run", New: newFlags}

// Plan is scenarios on cells. Its parts are those of product.Plan.
type Plan struct {
	texts    Texts
	seed     int64
	parallel int
	// all has the cells with each authorizer chain that scenarios are about, and cells those of them that are needed.
	all   []variants
	cells []CellPlan
	// existing is recorded of a cluster that somebody else made: the plan depends on what it is.
	existing *verdicts.Cell

	labels Labeller
	cases  []product.Case
	byID   map[string]caseSubject
}

// caseSubject is what a case is about: a scenario, or a part of what node agents show.
type caseSubject struct {
	cell     CellPlan
	scenario *scenarios.Scenario
	agents   AgentItem
}

// PlanOptions are what a plan is made of.
type PlanOptions struct {
	Texts Texts
	Cells []server.Options
	// Folders are the top folders of the scenarios to run, such as kep-5284; empty is all.
	Folders []string
	Seed    int64
	// Parallel is how many control planes run at once; 0 is as many as the machine has processors and memory for.
	Parallel int
}

// NewPlan plans scenarios on cells.
func NewPlan(o PlanOptions) *Plan {
	p := &Plan{texts: o.Texts, seed: o.Seed, parallel: o.Parallel, labels: Labeller{}}
	for _, c := range o.Cells {
		p.all = append(p.all, planVariants(o.Texts.Set, c, Selection{Folders: o.Folders}))
		if c.Capabilities().Foreign {
			p.existing = &c.Cell
		}
	}
	p.prune()
	return p
}

// prune takes up the cells that are needed.
func (p *Plan) prune() {
	p.cells, p.cases, p.byID = nil, nil, map[string]caseSubject{}
	for _, v := range p.all {
		p.cells = append(p.cells, v.listNeeded()...)
	}
	for _, c := range p.cells {
		p.cases = append(p.cases, c.Cases(p.labels)...)
		for _, item := range c.Items {
			p.byID[evidenceKey(c.Target.Cell.Name, item.Scenario.ID)] = caseSubject{cell: c, scenario: item.Scenario}
		}
		for _, item := range c.Agents {
			p.byID[c.Target.Cell.Name+"/"+item.name()] = caseSubject{cell: c, agents: item}
		}
	}
}

// CellPlans returns what will be done on each cell.
func (p *Plan) CellPlans() []CellPlan { return p.cells }

// Cases returns the cases of all cells.
func (p *Plan) Cases() []product.Case { return p.cases }

// DescribeGroup implements product.GroupDescriber: the version and the gate of a cell.
func (p *Plan) DescribeGroup(name string) string {
	i := slices.IndexFunc(p.cells, func(c CellPlan) bool { return c.Target.Cell.Name == name })
	return DescribeTarget(p.cells[i].Target)
}

// DescribeTarget returns what a cell's name need not say: the Kubernetes version in full, and whether the gate is on, off
// or absent there, also where nothing was asked of it.
func DescribeTarget(o server.Options) string {
	gate := o.Cell.Gate
	if gate := o.Cell.FeatureGate; gate.Name != "" {
		return fmt.Sprintf("Kubernetes %s, gate %s %s", o.Cell.Kubernetes, gate.Name, server.ExpectedFacts(o).FeatureGates[gate.Name])
	}
	if gate == scenarios.GateDefault {
		gate = server.ExpectedFacts(o).Gate
	}
	return fmt.Sprintf("Kubernetes %s, gate %s", o.Cell.Kubernetes, gate)
}

// Select leaves out cases. What would not have run anyway is left out as well, so that the user reads one reason.
func (p *Plan) Select(leaveOut func(product.Case) (why string)) {
	for _, v := range p.all {
		for i := range v {
			v[i].leaveOut(p.labels, leaveOut)
		}
	}
	p.prune()
}

// DropIdle takes the cells out of the plan on which nothing would run.
func (p *Plan) DropIdle() {
	p.all = slices.DeleteFunc(p.all, func(v variants) bool {
		return !slices.ContainsFunc(v, func(c CellPlan) bool { return c.Count(Run) > 0 })
	})
	p.prune()
}

func (p *CellPlan) leaveOut(labels Labeller, leaveOut func(product.Case) (why string)) {
	for i, c := range p.Cases(labels) {
		why := leaveOut(c)
		if why == "" {
			continue
		}
		if i < len(p.Items) {
			p.Items[i].Fate, p.Items[i].Why = LeftOut, why
		} else {
			agent := &p.Agents[i-len(p.Items)]
			agent.Fate, agent.Why = LeftOut, why
		}
	}
}

// existingKey is the key of the cell of a cluster that somebody else made.
const existingKey = "existing"

// Run runs the cells and records what is seen.
func (p *Plan) Run(ctx context.Context, log *record.Log, observer product.Observer) error {
	if err := p.texts.Record(log); err != nil {
		return err
	}
	if p.existing != nil {
		if err := log.Append(existingKey, p.existing); err != nil {
			return err
		}
		observer.Say(p.announceObjects())
	}
	return Execute(ctx, p.cells, p.parallel, Output{Seed: p.seed, Log: log, Observer: observer})
}

// announceObjects says what will be made in a cluster that somebody else made.
func (p *Plan) announceObjects() string {
	c := p.cells[0]
	m := c.Makes()
	return fmt.Sprintf(
		"%s: %s run; they create %s, %s, %s and %s with their bindings, labelled %s, and remove them; %s not supported",
		c.Target.Cell.Name,
		reports.Plural(c.Count(Run), "scenario"),
		reports.Plural(m.Namespaces, "namespace"),
		reports.Plural(m.Accounts, "service account"),
		reports.Plural(
			m.Roles,
			"role",
		),
		reports.Plural(m.ClusterRoles, "cluster role"),
		existing.Label,
		reports.Plural(c.Count(Unsupported), "scenario"),
	)
}

// Judge returns the verdict on a case.
func (p *Plan) Judge(id string, view record.View) reports.Result {
	item, known := p.byID[id]
	switch {
	case !known:
		return reports.Result{Verdict: verdicts.Invalid, Blame: verdicts.BlameHarness, Reason: "there is no such case"}
	case item.scenario == nil:
		return judgeAgents(p.seed, item.cell.Target.Cell.Name, item.agents.Part, view)
	}
	return JudgeScenario(item.scenario, item.cell.Target.Cell, view)
}
