package reports

import (
	"fmt"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/verdicts"
)

// Side names one cell of one report.
type Side struct {
	// Dir is the report's folder.
	Dir string
	// Cell is the cell's name; it may be empty where the report has only one.
	Cell string
}

// ParseSide reads FOLDER or FOLDER:CELL.
func ParseSide(s string) Side {
	dir, cell, _ := strings.Cut(s, ":")
	return Side{Dir: dir, Cell: cell}
}

// BehaviourDiff is what two cells do differently.
type BehaviourDiff struct {
	// A and B are the names of the cells.
	A, B string
	// Compared is the number of scenarios that ran on both.
	Compared int
	// Changed are those of them in which something else was seen, sorted.
	Changed []ScenarioDiff
	// OnlyA and OnlyB ran on one of the two, because they are about its version or gate.
	OnlyA, OnlyB []string
}

// ScenarioDiff is a scenario in which two cells differ. What is made up anew in every run (names, IDs, times)
// does not count.
type ScenarioDiff struct {
	Scenario string
	// A and B are the verdicts.
	A, B verdicts.Verdict
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
	d := &BehaviourDiff{A: left.cell, B: right.cell}
	for _, id := range sortedKeys(left.evidence) {
		e, ok := right.evidence[id]
		if !ok {
			d.OnlyA = append(d.OnlyA, id)
			continue
		}
		d.Compared++
		was, is := verdicts.Behaviour(left.evidence[id]), verdicts.Behaviour(e)
		if !slices.Equal(was, is) || left.verdict[id] != right.verdict[id] {
			d.Changed = append(d.Changed, ScenarioDiff{Scenario: id, A: left.verdict[id], B: right.verdict[id], Lines: diffLines(was, is)})
		}
	}
	for _, id := range sortedKeys(right.evidence) {
		if _, ok := left.evidence[id]; !ok {
			d.OnlyB = append(d.OnlyB, id)
		}
	}
	return d, nil
}

// sideData is what a cell has by scenario.
type sideData struct {
	cell     string
	verdict  map[string]verdicts.Verdict
	evidence map[string]*verdicts.Evidence
}

// readSide reads a cell and its evidence. The report is taken as it is: whether it holds is for Verify.
func readSide(s Side) (sideData, error) {
	root, r, _, err := openReport(s.Dir)
	if err != nil {
		return sideData{}, err
	}
	defer func() { _ = root.Close() }()
	cell, err := r.cell(s)
	if err != nil {
		return sideData{}, err
	}
	side := sideData{cell: cell.Name, verdict: map[string]verdicts.Verdict{}, evidence: map[string]*verdicts.Evidence{}}
	for _, result := range cell.Results {
		side.verdict[result.Scenario] = result.Verdict
		name := evidencePath(cell.Name, result.Scenario)
		if _, listed := r.Files[name]; !listed {
			continue // it was not run
		}
		raw, err := root.ReadFile(name)
		if err != nil {
			return sideData{}, err
		}
		if side.evidence[result.Scenario], err = decodeEvidence(raw); err != nil {
			return sideData{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return side, nil
}

// cell finds the asked for cell.
func (r *ConformanceReport) cell(s Side) (Cell, error) {
	var names []string
	for _, c := range r.Cells {
		if c.Name == s.Cell || s.Cell == "" && len(r.Cells) == 1 {
			return c, nil
		}
		names = append(names, c.Name)
	}
	if s.Cell == "" {
		return Cell{}, fmt.Errorf("%s has %d cells: say which as %s:CELL, of %s", s.Dir, len(names), s.Dir, strings.Join(names, ", "))
	}
	return Cell{}, fmt.Errorf("%s has no cell %q, only %s", s.Dir, s.Cell, strings.Join(names, ", "))
}

// diffLines is the longest common subsequence of two short texts, with what is on one side only.
func diffLines(a, b []string) (out []string) {
	align(len(a), len(b), 1, func(i, j int) int {
		if a[i] == b[j] {
			return 0
		}
		return 3 // more than two gaps: a line that differs is two
	}, func(i, j int) {
		switch {
		case j < 0:
			out = append(out, "- "+a[i])
		case i < 0:
			out = append(out, "+ "+b[j])
		default:
			out = append(out, "  "+a[i])
		}
	})
	return out
}
