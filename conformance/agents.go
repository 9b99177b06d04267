package conformance

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// AgentItem is one part of what the node agents show on a cell.
type AgentItem struct {
	Part nodes.Part
	Fate Fate
	// Why says in one line why it is not looked at.
	Why string
}

// agentsFolder begins the names of cases about node agents.
const agentsFolder = "node-agents/"

// name returns the name of the case.
func (i AgentItem) name() string { return agentsFolder + string(i.Part) }

// agentLabels are what the cases about node agents can be selected by.
func agentLabels() []string {
	return []string{"sig-auth", string(scenarios.Core), "FeatureGate:" + server.GateName, "slow", "serial"}
}

// planAgents returns what node agents show on the cell. They are about the constrained modes: with the gate off there is
// nothing to be seen that scenarios do not show.
func (p CellPlan) planAgents() []AgentItem {
	isOn := server.ExpectedFacts(p.Target).Gate == scenarios.GateOn
	if !isOn || !p.hasNodeScenario() {
		return nil
	}
	return seq.Map(nodes.Parts(), func(part nodes.Part) AgentItem { return AgentItem{Part: part, Fate: Run} })
}

// hasNodeScenario reports whether a scenario that runs on the cell is about pods on real nodes.
func (p CellPlan) hasNodeScenario() bool {
	return slices.ContainsFunc(p.Runs(), func(s *scenarios.Scenario) bool { return slices.Contains(s.Needs(), scenarios.KubeletNodes) })
}

// NeedsAgents reports whether node agents work on the cell.
func (p CellPlan) NeedsAgents() bool {
	return slices.ContainsFunc(p.Agents, func(i AgentItem) bool { return i.Fate == Run })
}

// NeedsNodes reports whether something on the cell is about pods on real nodes.
func (p CellPlan) NeedsNodes() bool { return p.NeedsAgents() || p.hasNodeScenario() }

// agentsKey is the key of what was seen of the node agents of a cell.
func agentsKey(cell string) string { return "agents/" + cell }

// judgeAgents returns the verdict on one part of what the node agents of a cell show.
func judgeAgents(seed int64, cell string, part nodes.Part, view record.View) reports.Result {
	r := reports.Result{Level: scenarios.Core}
	o, err := record.Read[nodes.Observation](view, agentsKey(cell))
	if err != nil {
		return invalidResult(r, verdicts.BlameHarness, err.Error())
	}
	r.Evidence = []string{view.EvidenceFile(agentsKey(cell))}
	j, err := o.Judge(nodes.Suffix(seed, cell))
	if err != nil {
		return invalidResult(r, verdicts.BlameHarness, err.Error())
	}
	r = JudgeChecks(r, j.Checks[part])
	if o.Problem != "" && r.Verdict != verdicts.Failed {
		return invalidResult(r, verdicts.BlameEnvironment, o.Problem)
	}
	return r
}

// JudgeChecks adds checks of what was seen of pods to a result: failed if one is not passed, and invalid if there is none.
func JudgeChecks(r reports.Result, checks []nodes.Check) reports.Result {
	r.Judged = len(checks)
	for _, c := range checks {
		if !c.Passed() {
			r.Differences = append(r.Differences, verdicts.Difference{Field: c.What, Want: c.Want, Got: c.Got})
		}
	}
	switch {
	case len(r.Differences) > 0:
		first := r.Differences[0]
		r.Verdict = verdicts.Failed
		r.Reason = fmt.Sprintf(
			"%d of %d checks failed; the first: %s: want %s, got %s",
			len(r.Differences),
			len(checks),
			first.Field,
			first.Want,
			first.Got,
		)
	case len(checks) == 0:
		return invalidResult(r, verdicts.BlameHarness, "nothing was looked at")
	default:
		r.Verdict = verdicts.Passed
	}
	return r
}

func invalidResult(r reports.Result, blame verdicts.Blame, why string) reports.Result {
	r.Verdict, r.Blame, r.Reason = verdicts.Invalid, blame, why
	return r
}

// noteAgents says what was seen of the node agents of a cell, where all of it was.
func noteAgents(report *reports.Report, seed int64, cell string, view record.View) {
	o, err := record.Read[nodes.Observation](view, agentsKey(cell))
	if err != nil || o.Problem != "" {
		return
	}
	j, err := o.Judge(nodes.Suffix(seed, cell))
	if err != nil {
		return
	}
	n := seq.Sum(nodes.Parts(), func(part nodes.Part) int { return len(j.Checks[part]) })
	report.AddNote(
		fmt.Sprintf(
			"%s: %d checks of the node agents; a token was good for %.1f s after its pod was deleted",
			cell,
			n,
			j.PodWindow.Seconds(),
		),
	)
}
