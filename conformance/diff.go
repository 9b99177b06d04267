package conformance

import (
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Side names one cell of one report.
type Side struct {
	Dir  string // the report's folder
	Cell string // the cell's name; it may be empty where the report has only one
}

// ParseSide reads FOLDER or FOLDER:CELL.
func ParseSide(s string) Side {
	dir, cell, _ := strings.Cut(s, ":")
	return Side{Dir: dir, Cell: cell}
}

// BehaviourDiff is what two cells do differently.
type BehaviourDiff struct {
	// A and B are the names of the cells.
	A, B     string
	Compared int            // the number of scenarios that ran on both
	Changed  []ScenarioDiff // those of them in which something else was seen, sorted
	// OnlyA and OnlyB ran on one of the two, because they are about its version or gate.
	OnlyA, OnlyB []string
	// From and To say of the two cells how they came about.
	From, To SideFacts
}

// SideFacts say how what was seen on a cell came about.
type SideFacts struct {
	// GitVersion is what the API server says that it is, Programs are what ran, where that is known.
	GitVersion string
	Programs   []reports.Program
	// Kubernetes and Gate are what was asked for, and Tool is the version of authzconf that wrote the report.
	Kubernetes string
	Gate       scenarios.Gate
	Tool       string
}

// Version is the version as flags name it. A source tree is somewhere else on each machine.
func (f SideFacts) Version() string {
	isTree := slices.ContainsFunc(f.Programs, func(p reports.Program) bool { return p.Name == reports.KubeAPIServer && p.Source != "" })
	if isTree {
		return "source --source DIR"
	}
	return f.Kubernetes
}

// ScenarioDiff is a scenario in which two cells differ. What is new in every run (names, IDs, times) does not count.
type ScenarioDiff struct {
	Scenario string
	// A and B are the verdicts.
	A, B verdicts.Verdict
	// Description is that of the scenario; empty if the record does not have its text.
	Description string
	// IsChance is set where both verdicts are the same, and the scenario leaves it to the server, or to the order in which
	// requests arrive, which of several things it does.
	IsChance bool
	// Lines begin with "- " (seen on A only), "+ " (on B only) or "  " (on both).
	Lines []string
}

// Diff compares the behaviour of two cells, of one report or of two.
func Diff(a, b Side) (*BehaviourDiff, error) {
	left, err := readSide(a)
	if err != nil {
		return nil, err
	}
	right, err := readSide(b)
	if err != nil {
		return nil, err
	}
	d := &BehaviourDiff{A: left.cell, B: right.cell, From: left.facts, To: right.facts}
	for _, id := range slices.Sorted(maps.Keys(left.evidence)) {
		if _, both := right.evidence[id]; !both {
			d.OnlyA = append(d.OnlyA, id)
			continue
		}
		d.Compared++
		was, is := verdicts.Behaviour(left.evidence[id]), verdicts.Behaviour(right.evidence[id])
		if !slices.Equal(was, is) || left.verdict[id] != right.verdict[id] {
			changed := ScenarioDiff{
				Scenario: id, A: left.verdict[id], B: right.verdict[id], Description: right.describe(id), Lines: diffLines(was, is),
			}
			changed.IsChance = changed.A == changed.B && right.leavesToChance(id)
			d.Changed = append(d.Changed, changed)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(right.evidence)) {
		if _, both := left.evidence[id]; !both {
			d.OnlyB = append(d.OnlyB, id)
		}
	}
	return d, nil
}

// sideData is what was seen on a cell, by scenario.
type sideData struct {
	cell     string
	facts    SideFacts
	set      *scenarios.Set // nil if the record's texts cannot be read
	verdict  map[string]verdicts.Verdict
	evidence map[string]*verdicts.Evidence
}

// News returns what changed and is not left to chance.
func (d *BehaviourDiff) News() []ScenarioDiff {
	return slices.DeleteFunc(slices.Clone(d.Changed), func(s ScenarioDiff) bool { return s.IsChance })
}

// Chance returns the scenarios in which something else happened by chance.
func (d *BehaviourDiff) Chance() []ScenarioDiff {
	return slices.DeleteFunc(slices.Clone(d.Changed), func(s ScenarioDiff) bool { return !s.IsChance })
}

// scenario returns a scenario by its ID; nil if the record does not have its text.
func (s *sideData) scenario(id string) *scenarios.Scenario {
	if s.set == nil {
		return nil
	}
	scenario, _ := s.set.Get(id)
	return scenario
}

// leavesToChance reports whether a scenario lets the server do one of several things, or sends requests at the same time.
func (s *sideData) leavesToChance(id string) bool {
	scenario := s.scenario(id)
	if scenario == nil {
		return false
	}
	return leavesToChance(scenario) || slices.ContainsFunc(scenario.Steps, func(st scenarios.Step) bool { return st.Beside })
}

// describe returns the description of a scenario, in one line.
func (s *sideData) describe(id string) string {
	scenario := s.scenario(id)
	if scenario == nil {
		return ""
	}
	return strings.Join(strings.Fields(scenario.Description), " ")
}

func findSideFacts(r *reports.Report, g *reports.Group) SideFacts {
	facts := SideFacts{Tool: r.SuiteVersion}
	if g.Witness != nil {
		facts.GitVersion, facts.Programs = g.Witness.GitVersion, g.Witness.Programs
	}
	if g.Cell != nil {
		facts.Kubernetes, facts.Gate = g.Cell.Kubernetes, g.Cell.Gate
	}
	return facts
}

func readSide(s Side) (*sideData, error) {
	saved, err := ReadSaved(s.Dir)
	if err != nil {
		return nil, err
	}
	g, err := saved.group(s.Dir, s.Cell)
	if err != nil {
		return nil, err
	}
	set, err := LoadRecorded(saved.View)
	if err != nil {
		set = nil // only descriptions are lost: another version of authzconf may have written the texts
	}
	side := &sideData{
		cell:     g.Name,
		facts:    findSideFacts(saved.Report, g),
		set:      set,
		verdict:  map[string]verdicts.Verdict{},
		evidence: map[string]*verdicts.Evidence{},
	}
	for _, r := range g.Cases {
		if isScenario := saved.View.Has(evidenceKey(g.Name, r.Case)); !isScenario {
			continue
		}
		side.verdict[r.Case] = r.Verdict
		if side.evidence[r.Case], err = ReadEvidence(saved.View, g.Name, r.Case); err != nil {
			return nil, err
		}
	}
	return side, nil
}
