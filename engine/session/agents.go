package session

import (
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/engine/nodes"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// needsNodes says whether a scenario of the cell is about pods on real nodes.
func (c *Cell) needsNodes() bool {
	for _, j := range c.jobs {
		if slices.Contains(j.scenario.Needs(), scenarios.KubeletNodes) {
			return true
		}
	}
	return false
}

// loadAgent brings the node agent's image to the nodes of a cell that needs it.
func (s *Session) loadAgent(c *Cell) error {
	if !c.needsNodes() {
		return nil
	}
	if err := nodes.LoadAgent(s.ctx, c.Target); err != nil {
		return fmt.Errorf("the node agent's image: %w", err)
	}
	return nil
}

// runAgents lets the node agents work before any scenario: a DaemonSet would wait for the Nodes of scenarios, on
// which no kubelet runs its pods. The agents are about the constrained modes: with the gate off there is nothing
// to be seen that scenarios do not show.
func (s *Session) runAgents(c *Cell) {
	if !c.needsNodes() || c.Target.Facts.Gate != scenarios.GateOn || s.ctx.Err() != nil {
		return
	}
	name := c.Plan.Target.Cell.Name
	out, err := nodes.Run(s.ctx, c.Target, scenarios.Suffix(s.seed, name, "agents"))
	c.Agents = &reports.Agents{PodWindowSeconds: out.PodWindow.Seconds(), NodeWindowSeconds: out.NodeWindow.Seconds()}
	for _, check := range out.Checks {
		c.Agents.Checks = append(c.Agents.Checks, reports.AgentCheck(check))
	}
	if err != nil {
		c.Agents.Problem = err.Error()
	}
	s.events(Event{Text: fmt.Sprintf("%s: node agents: %d checks, %d failed", name, len(out.Checks), len(out.Failed()))})
}
