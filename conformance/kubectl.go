package conformance

import (
	"cmp"
	"context"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// kubectlVersions returns the minors of the kubectls that scenarios of the cell run.
func (c *Cell) kubectlVersions() []string {
	var selection []*scenarios.Scenario
	for _, j := range c.jobs {
		selection = append(selection, j.scenario)
	}
	return scenarios.KubectlVersions(selection)
}

// findKubectls finds the kubectls that scenarios of the cell run, building them if need be.
func (c *Cell) findKubectls(ctx context.Context) (map[string]string, error) {
	return c.Plan.Target.Binaries.Kubectls(ctx, c.kubectlVersions())
}

// postponeKubectls decides on which cells the scenarios that run kubectl come after all others, because their kubectl has to be
// downloaded or built first: nobody should wait for that before the first verdict. Building takes all processors for minutes,
// which is no company for scenarios, so such a cell waits with its cluster until all others are done.
func (s *Session) postponeKubectls(groups [][]*Cell) {
	var late []*Cell
	for _, group := range groups {
		s.unfinished.Add(len(group))
		last := group[len(group)-1]
		if len(last.kubectlVersions()) == 0 {
			continue
		}
		last.Plan.Target.Binaries = cmp.Or(last.Plan.Target.Binaries, &local.Binaries{})
		if !last.Plan.Target.Binaries.HasKubectls(s.ctx, last.kubectlVersions()) {
			late = append(late, last)
		}
	}
	if !s.canWait(len(late), len(groups)) {
		return
	}
	for _, c := range late {
		c.isKubectlLate = true
	}
}

// canWait reports whether so many groups of cells can wait for all others. The worker of a group that waits takes no other
// group, so unless each has its own one has to be left.
func (s *Session) canWait(waiting, groups int) bool {
	isLimited := s.Parallel > 0 && s.Parallel < groups
	return !isLimited || waiting < s.Parallel
}

// runLate waits until all cells have run everything else, finds the kubectls of a cell, and runs the scenarios that need them.
func (s *Session) runLate(c *Cell, run *replay.Replayer, late []*scenarios.Scenario) {
	s.unfinished.Wait()
	s.building.Lock()
	programs, err := c.findKubectls(s.ctx)
	s.building.Unlock()
	if err != nil {
		for _, scenario := range late {
			j := c.jobs[scenario.ID]
			c.keep(j, c.brokenEvidence(j, verdicts.BlameEnvironment, err))
		}
		return
	}
	c.Target.Kubectl = programs
	s.runInOrder(c, run, late)
}
