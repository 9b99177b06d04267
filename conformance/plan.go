package conformance

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// Selection is what the user wants to run. The zero value is everything.
type Selection struct {
	// Focus and Skip match scenario IDs; nil is not given.
	Focus, Skip *regexp.Regexp
	// Levels to run; empty is all.
	Levels  []scenarios.Level
	Folders []string // the top folders of scenario IDs, such as kep-5284; empty is all
	// Labels, if given, decides by the labels of a scenario; see Labels.
	Labels func(labels []string) bool
}

// Labels are what a scenario can be selected by, in the words of Kubernetes' own end-to-end tests.
func Labels(s *scenarios.Scenario) []string {
	labels := []string{"sig-auth", string(s.Level)}
	if s.Requires.Gate == scenarios.GateOn {
		labels = append(labels, "FeatureGate:"+server.GateName)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Requires.FeatureGates)) {
		labels = append(labels, "FeatureGate:"+name)
	}
	if s.Waits() > 0 {
		labels = append(labels, "slow")
	}
	if s.Alone() {
		labels = append(labels, "serial")
	}
	if s.OnAnyCluster() == "" {
		labels = append(labels, "any-cluster")
	}
	return labels
}

// Fate is what is to become of a scenario on a cell.
type Fate string

const (
	// Run: it will be replayed.
	Run Fate = "run"
	// NotSelected: it is for another version or gate.
	NotSelected Fate = "notSelected"
	// LeftOut: the user's selection leaves it out.
	LeftOut Fate = "leftOut"
	// Unsupported: the target lacks a capability.
	Unsupported Fate = "unsupported"
	// NotMade: its setup is made on a later stage of the upgrade path.
	NotMade Fate = "notMade"
)

// Item is one scenario on one cell.
type Item struct {
	Scenario *scenarios.Scenario
	Fate     Fate
	// Why says in one line why it is not run.
	Why string
}

// CellPlan is what will be done on one cell.
type CellPlan struct {
	Target server.Options
	Items  []Item
	// Agents are the parts of what node agents show, where the cell has nodes.
	Agents []AgentItem
}

// Count is the number of items with a fate.
func (p CellPlan) Count(f Fate) int {
	return seq.Count(p.Items, func(i Item) bool { return i.Fate == f })
}

// Runs are the scenarios that will be replayed, in order.
func (p CellPlan) Runs() []*scenarios.Scenario {
	runs := seq.Filter(p.Items, func(i Item) bool { return i.Fate == Run })
	return seq.Map(runs, func(i Item) *scenarios.Scenario { return i.Scenario })
}

// ErrNothingSelected is wrapped by the error of a plan in which nothing would run: that would not be a pass.
var ErrNothingSelected = errors.New("nothing would run")

// PlanCells decides for every scenario and cell, without a server: by the facts asked for, which the witness has to
// confirm.
//
// Scenarios about another authorizer chain than the ordinary one get a cell of their own for each cell.
func PlanCells(set *scenarios.Set, cells []server.Options, sel Selection) (plans []CellPlan, _ error) {
	for _, c := range cells {
		plans = append(plans, planVariants(set, c, sel).listNeeded()...)
	}
	if seq.Sum(plans, func(p CellPlan) int { return p.Count(Run) }) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNothingSelected, explainNothing(plans))
	}
	return plans, nil
}

// variants are the plan of a cell, first with the ordinary authorizer chain, then with each other one that scenarios are
// about.
type variants []CellPlan

func planVariants(set *scenarios.Set, c server.Options, sel Selection) variants {
	all := variants{planCell(set, c, sel)}
	if !c.Capabilities().Reload {
		return all // Its chain is its own.
	}
	for _, chain := range chains(set) {
		other := c
		other.Chain, other.Cell.Name = chain, c.Cell.Name+"-"+chain
		all = append(all, planCell(set, other, sel))
	}
	return all
}

// listNeeded returns the variants on which something is run. The ordinary one is there if no other is: a cell on which
// nothing is run must not disappear.
func (v variants) listNeeded() (plans []CellPlan) {
	others := seq.Filter(v[1:], func(p CellPlan) bool { return p.Count(Run) > 0 })
	if v[0].Count(Run) > 0 || len(others) == 0 {
		plans = append(plans, v[0])
	}
	return append(plans, others...)
}

func planCell(set *scenarios.Set, c server.Options, sel Selection) CellPlan {
	p := CellPlan{Target: c}
	facts := server.ExpectedFacts(c)
	p.Items = seq.Map(set.All(), func(s *scenarios.Scenario) Item { return decide(s, c, facts, sel) })
	p.Agents = p.planAgents()
	return p
}

func chains(set *scenarios.Set) []string {
	names := sets.New(seq.Map(set.All(), func(s *scenarios.Scenario) string { return s.Requires.Chain })...)
	return sets.List(names.Delete(""))
}

func explainNothing(plans []CellPlan) string {
	var left, selected, unsupported int
	for _, p := range plans {
		left += p.Count(LeftOut)
		selected += p.Count(NotSelected)
		unsupported += p.Count(Unsupported)
	}
	return fmt.Sprintf(
		"of the scenarios on these cells, %d are left out by --suite, --focus, --skip, --level or --label-filter, %d are for another version or gate, %d need what the target cannot show",
		left,
		selected,
		unsupported,
	)
}

func decide(s *scenarios.Scenario, _ server.Options, facts scenarios.Facts, sel Selection) Item {
	if why := sel.leavesOut(s); why != "" {
		return Item{Scenario: s, Fate: LeftOut, Why: why}
	}
	if facts.Capabilities.Foreign() {
		return onExisting(s, facts)
	}
	ok, missing, why := s.Selected(facts)
	switch {
	case ok:
		return Item{Scenario: s, Fate: Run}
	case len(missing) > 0:
		return Item{Scenario: s, Fate: Unsupported, Why: scenarios.Lacks(missing)}
	default:
		return Item{Scenario: s, Fate: NotSelected, Why: why}
	}
}

func (sel Selection) leavesOut(s *scenarios.Scenario) string {
	folder, _, _ := strings.Cut(s.ID, "/")
	switch {
	case len(sel.Folders) > 0 && !slices.Contains(sel.Folders, folder):
		return "not in --suite"
	case sel.Focus != nil && !sel.Focus.MatchString(s.ID):
		return "does not match --focus"
	case sel.Skip != nil && sel.Skip.MatchString(s.ID):
		return "matches --skip"
	case len(sel.Levels) > 0 && !slices.Contains(sel.Levels, s.Level):
		return "not at --level"
	case sel.Labels != nil && !sel.Labels(Labels(s)):
		return "does not match --label-filter"
	}
	return ""
}

// Choose returns the scenarios that the selection does not leave out.
func (sel Selection) Choose(set *scenarios.Set) []*scenarios.Scenario {
	return slices.DeleteFunc(slices.Clone(set.All()), func(s *scenarios.Scenario) bool { return sel.leavesOut(s) != "" })
}

func onExisting(s *scenarios.Scenario, facts scenarios.Facts) Item {
	ok, unsupported, why := s.SelectedThere(facts)
	switch {
	case ok:
		return Item{Scenario: s, Fate: Run}
	case unsupported:
		return Item{Scenario: s, Fate: Unsupported, Why: why}
	}
	return Item{Scenario: s, Fate: NotSelected, Why: why}
}

// Makes counts what the scenarios of a plan make on a cluster that somebody else made.
type Makes struct{ Namespaces, Accounts, Roles, ClusterRoles int }

// Makes returns what the scenarios of the cell make. Objects of a scenario's own are in its namespaces.
func (p CellPlan) Makes() (m Makes) {
	for _, item := range p.Items {
		if item.Fate == Run {
			m.addScenario(item.Scenario)
		}
	}
	return m
}

// starts reports whether the target of the cell is started: there is something to run on it.
func (p CellPlan) starts() bool { return p.Count(Run) > 0 || p.NeedsAgents() }

// addScenario adds what a scenario makes, or nothing if it needs a requestor that no ServiceAccount can stand for.
func (m *Makes) addScenario(s *scenarios.Scenario) {
	bound, _ := s.Bind(scenarios.Suffix(0, "existing", s.ID))
	withAccounts, why := bound.Substitute()
	if why != "" {
		return
	}
	for _, r := range withAccounts.Requestors {
		if r.ServiceAccount != nil {
			m.Accounts++
		}
	}
	for _, o := range scenarios.RenderRBAC(withAccounts) {
		if o.Namespace == "" {
			m.ClusterRoles++
		} else {
			m.Roles++
		}
	}
	m.Namespaces += countNamespaces(withAccounts)
}

// countNamespaces counts the namespaces that a scenario names.
func countNamespaces(s *scenarios.Scenario) int {
	names := map[string]bool{}
	for _, r := range s.Requestors {
		if r.ServiceAccount != nil {
			names[r.ServiceAccount.Namespace] = true
		}
	}
	for _, g := range s.Grants {
		names[g.Namespace] = true
	}
	for _, step := range s.Steps {
		if r := step.Sent(); r != nil {
			names[r.Namespace] = true
		}
	}
	delete(names, "") // cluster-scoped
	return len(names)
}
