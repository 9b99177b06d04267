package reports

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// behaviourTable shows what scenarios did on cells of one authorizer chain. It is derived from the evidence
// whenever a page is made, so that Verify vouches for it as for the rest of the page.
type behaviourTable struct {
	Chain string // the authorizer chain; empty is the ordinary one
	// Cells are in the order in which they are compared: by the gate, then by version.
	Cells []*Cell
	// Changed are the scenarios that behaved in more than one way, those that changed between versions first.
	// Same are the others that ran on more than one cell.
	Changed, Same []behaviourRow
	// Limited are the scenarios that are written for some of the versions only: a change that somebody has described.
	Limited []*scenarios.Scenario
}

type behaviourRow struct {
	Scenario string
	// Letters say which cells behaved alike; empty is not run, "!" invalid.
	Letters []string
	Kinds   int // the number of letters
	// Chance is set where the scenario itself lets the server do one of several things: another of these is no change.
	Chance bool
	Steps  []behaviourStep // the changes between neighbours of the same gate
}

// behaviourStep is a change from one cell to the next one of the same gate.
type behaviourStep struct {
	From, To string
	// Lines begin with "- " (seen before only) or "+ " (seen after only).
	Lines []string
}

const letterInvalid = "!"

// behaviourTables compares the cells of a report, chain by chain. One without two cells, or differences, has none.
func behaviourTables(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) []behaviourTable {
	var tables []behaviourTable
	for i := range r.Cells {
		c := &r.Cells[i]
		t := entry(&tables, func(t behaviourTable) bool { return t.Chain == c.Facts.Chain }, behaviourTable{Chain: c.Facts.Chain})
		t.Cells = append(t.Cells, c)
	}
	tables = slices.DeleteFunc(tables, func(t behaviourTable) bool { return len(t.Cells) < 2 })
	at := index(evidence)
	for i := range tables {
		t := &tables[i]
		slices.SortStableFunc(t.Cells, compareCells)
		for _, s := range r.Scenarios {
			text, _ := set.Get(s.ID)
			t.add(s.ID, leavesToChance(text), at)
			if t.limited(s.ID, at) && text != nil {
				t.Limited = append(t.Limited, text)
			}
		}
		slices.SortStableFunc(t.Changed, func(a, b behaviourRow) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	return slices.DeleteFunc(tables, func(t behaviourTable) bool { return len(t.Changed)+len(t.Same)+len(t.Limited) == 0 })
}

// rank puts what changed from version to version before what depends on the gate alone, and that before chance.
func (r behaviourRow) rank() int {
	switch {
	case r.Chance:
		return 2
	case len(r.Steps) == 0:
		return 1
	}
	return 0
}

func leavesToChance(s *scenarios.Scenario) bool {
	return s != nil && slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool { return st.Expect != nil && len(st.Expect.OneOf) > 0 })
}

// compareCells orders cells by gate, then by the version that they behave as, then by that of the program.
func compareCells(a, b *Cell) int {
	return cmp.Or(
		cmp.Compare(a.Facts.Gate, b.Facts.Gate),
		compareMinors(a.Facts.Kubernetes, b.Facts.Kubernetes),
		cmp.Compare(a.Emulated, b.Emulated),
		compareMinors(a.Facts.Binary, b.Facts.Binary),
	)
}

// compareMinors compares versions by their minor; what is not a version comes first.
func compareMinors(a, b string) int {
	x, errX := semver.NewVersion(a)
	y, errY := semver.NewVersion(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return cmp.Or(cmp.Compare(x.Major(), y.Major()), cmp.Compare(x.Minor(), y.Minor()))
}

type seenBehaviour struct {
	lines   []string
	metrics bool // whether they can be seen there
}

func behaviourOf(e *verdicts.Evidence) seenBehaviour {
	return seenBehaviour{verdicts.Behaviour(e), slices.Contains(e.Capabilities, scenarios.Metrics)}
}

// metricLine is a line of verdicts.Behaviour about a counter.
var metricLine = regexp.MustCompile(`^step \d+: metric: `)

// comparable are the lines that can be seen on a cell like another one, too.
func (b seenBehaviour) comparable(other seenBehaviour) []string {
	if b.metrics == other.metrics {
		return b.lines
	}
	return slices.DeleteFunc(slices.Clone(b.lines), metricLine.MatchString)
}

func (b seenBehaviour) equal(other seenBehaviour) bool {
	return slices.Equal(b.comparable(other), other.comparable(b))
}

func (t *behaviourTable) add(scenario string, chance bool, at map[key]*verdicts.Evidence) {
	row := behaviourRow{Scenario: scenario, Chance: chance, Letters: make([]string, len(t.Cells))}
	var kinds []seenBehaviour // by letter; of two that cannot be told apart, the one with more to see
	last, ran := map[scenarios.Gate]int{}, 0
	seen := make([]seenBehaviour, len(t.Cells))
	for i, c := range t.Cells {
		e := at[key{c.Name, scenario}]
		if e == nil {
			continue
		}
		ran++
		if len(e.Problems) > 0 {
			row.Letters[i] = letterInvalid
			continue
		}
		b := behaviourOf(e)
		seen[i] = b
		k := slices.IndexFunc(kinds, b.equal)
		if k < 0 {
			k = len(kinds)
			kinds = append(kinds, b)
		} else if b.metrics {
			kinds[k] = b
		}
		row.Letters[i] = letter(k)
		if before, ok := last[c.Facts.Gate]; ok && row.Letters[before] != row.Letters[i] {
			row.Steps = append(row.Steps, behaviourStep{t.Cells[before].Name, c.Name, changedLines(seen[before], b)})
		}
		last[c.Facts.Gate] = i
	}
	row.Kinds = len(kinds)
	switch {
	case row.Kinds > 1:
		t.Changed = append(t.Changed, row)
	case ran > 1:
		t.Same = append(t.Same, row)
	}
}

// limited says whether a scenario ran on a cell, and was not for another one of the same gate.
func (t *behaviourTable) limited(scenario string, at map[key]*verdicts.Evidence) bool {
	ran := map[scenarios.Gate]bool{}
	for _, c := range t.Cells {
		ran[c.Facts.Gate] = ran[c.Facts.Gate] || at[key{c.Name, scenario}] != nil
	}
	return slices.ContainsFunc(t.Cells, func(c *Cell) bool {
		return ran[c.Facts.Gate] && slices.ContainsFunc(c.NotRun, func(n NotRun) bool { return n.Scenario == scenario && n.Cause == CauseTarget })
	})
}

func letter(n int) string {
	text := string(rune('A' + n%26))
	if n >= 26 {
		text += fmt.Sprint(n / 26)
	}
	return text
}

func changedLines(a, b seenBehaviour) []string {
	return slices.DeleteFunc(diffLines(a.comparable(b), b.comparable(a)), func(l string) bool { return strings.HasPrefix(l, "  ") })
}

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
}

// ScenarioDiff is a scenario in which two cells differ. What is new in every run (names, IDs, times) does not count.
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
	for _, id := range slices.Sorted(maps.Keys(left.evidence)) {
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
	for _, id := range slices.Sorted(maps.Keys(right.evidence)) {
		if _, ok := left.evidence[id]; !ok {
			d.OnlyB = append(d.OnlyB, id)
		}
	}
	return d, nil
}

type sideData struct {
	cell     string
	verdict  map[string]verdicts.Verdict
	evidence map[string]*verdicts.Evidence
}

// readSide reads a cell and its evidence. The report is taken as it is: whether it holds is for Verify.
func readSide(s Side) (sideData, error) {
	v, done, err := open(s.Dir, reportFile)
	if err != nil {
		return sideData{}, err
	}
	defer done()
	r, err := DecodeReport(path.Join(s.Dir, reportFile), v.Marker)
	if err != nil {
		return sideData{}, err
	}
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
		raw, err := filing.ReadFile(v.root, name)
		if err != nil {
			return sideData{}, err
		}
		if side.evidence[result.Scenario], err = decodeEvidence(raw); err != nil {
			return sideData{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return side, nil
}

func (r *ConformanceReport) cell(s Side) (Cell, error) {
	if s.Cell == "" && len(r.Cells) == 1 {
		return r.Cells[0], nil
	}
	names := strings.Join(cellNames(r.Cells), ", ")
	switch c := r.cellNamed(s.Cell); {
	case c != nil:
		return *c, nil
	case s.Cell == "":
		return Cell{}, fmt.Errorf("%s has %d cells: say which as %s:CELL, of %s", s.Dir, len(r.Cells), s.Dir, names)
	}
	return Cell{}, fmt.Errorf("%s has no cell %q, only %s", s.Dir, s.Cell, names)
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
