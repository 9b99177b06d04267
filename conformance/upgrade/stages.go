package upgrade

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/conformance/upgradepath"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// StagePlan is what will be done on one stage of a path: a cell, and how it is reached.
type StagePlan struct {
	conformance.CellPlan
	// Index is that of the path's stage, Server which API server is replaced: 0 without high availability.
	Index  int
	Server int
	// Fault is what goes wrong on the way here.
	Fault upgradepath.Fault
	// Nodes is the version that the kubelets become on the way here, out of NodeImage if one is named; empty if they stay.
	Nodes     string
	NodeImage string
	// Workloads are the setups that work while the stage is entered: each has a scenario for the servers before and for this
	// one, of a single request.
	Workloads []string
	// Made are the setups that are made on this stage.
	Made []string
	// Claims are what is judged about the stage as a whole.
	Claims []ClaimItem
	// scenario has the scenario of each setup that is for this stage.
	scenario map[string]*scenarios.Scenario
}

// Name is that of the stage's cell.
func (s *StagePlan) Name() string { return s.Target.Cell.Name }

// Setups returns the scenarios of the setups that take part in a path.
func Setups(p *upgradepath.Path, all *scenarios.Set) (*scenarios.Set, error) {
	all = all.Only(p.CanHave)
	allSetups, names := all.Setups(), slices.Clone(p.Setups)
	if len(allSetups) == 0 {
		return nil, fmt.Errorf(
			"path %s: no scenario has a setup (expected setup in the head of those whose objects are made once and kept)",
			p.Name,
		)
	}
	for _, stage := range p.Stages {
		names = append(names, stage.Make...)
	}
	for _, name := range names {
		if !slices.Contains(allSetups, name) {
			return nil, fmt.Errorf("path %s: there is no setup %q; there are %s", p.Name, name, strings.Join(allSetups, ", "))
		}
	}
	return all.Only(func(s *scenarios.Scenario) bool { return p.TakesPart(s.Setup) }), nil
}

// planStages plans the stages of a path. The set must hold the scenarios of the path's setups and no others. base is as
// for Path.Targets. An error is for the user to mend.
func planStages(p *upgradepath.Path, set *scenarios.Set, base matrix.Matrix) (stages []*StagePlan, _ error) {
	targets, err := p.Targets(base)
	if err != nil {
		return nil, err
	}
	running := slices.Repeat([]local.Release{targets[0].Release}, p.CountServers(base))
	for i, o := range targets {
		for n := range running {
			cell := o
			if p.HighAvailability {
				cell.Cell.Name += "-" + string(rune('a'+n))
				running[n] = o.Release
				upgradepath.SetOthers(&cell, base, slices.Delete(slices.Clone(running), n, n+1))
			}
			stage := &StagePlan{
				Index:     i,
				Server:    n,
				Fault:     p.Stages[i].Fault,
				Nodes:     p.Stages[i].Nodes,
				NodeImage: p.Stages[i].NodeImage(base),
			}
			if err := stage.plan(p, set, cell); err != nil {
				return nil, err
			}
			stages = append(stages, stage)
		}
	}
	planWorkloads(stages)
	planClaims(p, stages)
	return stages, nil
}

// plan picks for a stage at most one scenario of each setup: a second would meet what the first left in the caches.
func (s *StagePlan) plan(p *upgradepath.Path, set *scenarios.Set, cell server.Options) error {
	facts := server.ExpectedFacts(cell)
	s.Target, s.scenario = cell, map[string]*scenarios.Scenario{}
	for _, scenario := range set.All() {
		item := conformance.Item{Scenario: scenario}
		ok, _, why := scenario.Selected(facts)
		switch stage := p.MadeOn(scenario.Setup); {
		case !ok:
			item.Fate, item.Why = conformance.NotSelected, why
		case stage > s.Index:
			item.Fate, item.Why = conformance.NotMade, fmt.Sprintf("the setup %s is made on stage %d", scenario.Setup, stage+1)
		default:
			item.Fate = conformance.Run
			if other := s.scenario[scenario.Setup]; other != nil {
				return fmt.Errorf(
					"stage %d, %s: both %s and %s of the setup %s are for it",
					s.Index+1,
					s.Name(),
					other.ID,
					scenario.ID,
					scenario.Setup,
				)
			}
			s.scenario[scenario.Setup] = scenario
		}
		s.Items = append(s.Items, item)
	}
	if len(s.scenario) == 0 {
		return fmt.Errorf("path %s: nothing would run on stage %d, %s", p.Name, s.Index+1, s.Name())
	}
	s.Made = seq.Filter(set.Setups(), func(name string) bool { return p.MadeOn(name) == s.Index && s.Server == 0 })
	return nil
}

// planWorkloads finds the setups that work while each stage is entered.
func planWorkloads(stages []*StagePlan) {
	running := map[int]*StagePlan{} // by server
	for _, s := range stages {
		if s.Index > 0 {
			s.Workloads = seq.Filter(slices.Sorted(maps.Keys(s.scenario)), func(setup string) bool { return canWork(setup, s, running) })
		}
		running[s.Server] = s
	}
}

// canWork reports whether a setup is a single request on a stage and on all that run before it, so that it can be sent all the
// time and judged whichever server answers.
func canWork(setup string, next *StagePlan, running map[int]*StagePlan) bool {
	for _, s := range append(slices.Collect(maps.Values(running)), next) {
		if scenario := s.scenario[setup]; scenario == nil || len(scenario.Steps) != 1 {
			return false
		}
	}
	return true
}

// flows reports whether requests flow while the stage is entered.
func (s *StagePlan) flows() bool { return len(s.Workloads) > 0 }
