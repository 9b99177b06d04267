package conformance

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// behaviourTable shows what scenarios did on cells of one authorizer chain.
type behaviourTable struct {
	Chain string // the authorizer chain; empty is the ordinary one
	// Cells are in the order in which they are compared: by the gate, then by version.
	Cells []behaviourCell
	// Changed are the scenarios that behaved in more than one way, those that changed between versions first.
	// Same are the others that ran on more than one cell.
	Changed []behaviourRow
	Same    []behaviourRow
	// Limited are the scenarios that are written for some of the versions only: a change that somebody has described.
	Limited []*scenarios.Scenario
}

// behaviourCell is a cell with what decides its place in a table.
type behaviourCell struct {
	name      string
	facts     scenarios.Facts
	emulated  string
	elsewhere map[string]bool // the scenarios that are for another version, gate or chain
}

// behaviourRow is what one scenario did on the cells of a table.
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
	From string
	To   string
	// Lines begin with "- " (seen before only) or "+ " (seen after only).
	Lines []string
}

const letterInvalid = "!"

// compareCells compares the cells of a plan, chain by chain. A chain without two cells, or differences, has no table.
func compareCells(set *scenarios.Set, plans []CellPlan, view record.View) (tables []behaviourTable) {
	for _, p := range plans {
		if p.Target.Cell.Unchanged {
			continue // see describeUnchanged
		}
		c := newBehaviourCell(p)
		i := slices.IndexFunc(tables, func(t behaviourTable) bool { return t.Chain == c.facts.Chain })
		if i < 0 {
			i = len(tables)
			tables = append(tables, behaviourTable{Chain: c.facts.Chain})
		}
		tables[i].Cells = append(tables[i].Cells, c)
	}
	tables = slices.DeleteFunc(tables, func(t behaviourTable) bool { return len(t.Cells) < 2 })
	for i := range tables {
		t := &tables[i]
		slices.SortStableFunc(t.Cells, orderCells)
		for _, s := range set.All() {
			t.add(s, view)
		}
		slices.SortStableFunc(t.Changed, func(a, b behaviourRow) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	return slices.DeleteFunc(tables, func(t behaviourTable) bool { return len(t.Changed)+len(t.Same)+len(t.Limited) == 0 })
}

func newBehaviourCell(p CellPlan) behaviourCell {
	c := behaviourCell{
		name: p.Target.Cell.Name, facts: server.ExpectedFacts(p.Target), emulated: p.Target.Cell.Emulated, elsewhere: map[string]bool{},
	}
	for _, item := range p.Items {
		c.elsewhere[item.Scenario.ID] = item.Fate == NotSelected
	}
	return c
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

// leavesToChance reports whether a scenario lets the server do one of several things.
func leavesToChance(s *scenarios.Scenario) bool {
	return slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool { return st.Expect != nil && len(st.Expect.OneOf) > 0 })
}

// orderCells orders cells by gate, then by the version that they behave as, then by that of the program.
func orderCells(a, b behaviourCell) int {
	return cmp.Or(
		cmp.Compare(a.facts.Gate, b.facts.Gate),
		compareMinors(a.facts.Kubernetes, b.facts.Kubernetes),
		cmp.Compare(a.emulated, b.emulated),
		compareMinors(a.facts.Binary, b.facts.Binary),
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

// behaviour is what a server did in a scenario, without what is new in every run.
type behaviour struct {
	lines   []string
	metrics bool // whether they can be seen there
}

func behaviourOf(e *verdicts.Evidence) behaviour {
	return behaviour{verdicts.Behaviour(e), slices.Contains(e.Capabilities, scenarios.Metrics)}
}

// metricLine matches a line of verdicts.Behaviour about a counter.
var metricLine = regexp.MustCompile(`^step \d+: metric: `)

// comparable returns the lines that can be seen on a cell like another one, too.
func (b behaviour) comparable(other behaviour) []string {
	if b.metrics == other.metrics {
		return b.lines
	}
	return slices.DeleteFunc(slices.Clone(b.lines), metricLine.MatchString)
}

func (b behaviour) equal(other behaviour) bool {
	return slices.Equal(b.comparable(other), other.comparable(b))
}

// add adds a scenario to the list of the table that it belongs to.
func (t *behaviourTable) add(s *scenarios.Scenario, view record.View) {
	row, ran := t.compare(s, view)
	switch {
	case row.Kinds > 1:
		t.Changed = append(t.Changed, row)
	case len(ran) > 1:
		t.Same = append(t.Same, row)
	}
	if t.isLimited(s.ID, ran) {
		t.Limited = append(t.Limited, s)
	}
}

// compare compares what a scenario did on the cells. It also returns the indices of the cells that it ran on.
func (t *behaviourTable) compare(s *scenarios.Scenario, view record.View) (row behaviourRow, ran []int) {
	row = behaviourRow{Scenario: s.ID, Chance: leavesToChance(s), Letters: make([]string, len(t.Cells))}
	var kinds behaviourKinds
	last := map[scenarios.Gate]int{}
	behaviours := make([]behaviour, len(t.Cells))
	for i, c := range t.Cells {
		e := findEvidence(view, c.name, s.ID)
		if e == nil {
			continue
		}
		ran = append(ran, i)
		if len(e.Problems) > 0 {
			row.Letters[i] = letterInvalid
			continue
		}
		behaviours[i] = behaviourOf(e)
		row.Letters[i] = kinds.letter(behaviours[i])
		before, known := last[c.facts.Gate]
		if known && row.Letters[before] != row.Letters[i] {
			row.Steps = append(row.Steps, behaviourStep{t.Cells[before].name, c.name, changedLines(behaviours[before], behaviours[i])})
		}
		last[c.facts.Gate] = i
	}
	row.Kinds = len(kinds)
	return row, ran
}

// behaviourKinds are the behaviours that can be told apart, by letter. Of two that cannot, the one with more to see is kept.
type behaviourKinds []behaviour

// letter returns the letter of a behaviour.
func (k *behaviourKinds) letter(b behaviour) string {
	n := slices.IndexFunc(*k, b.equal)
	switch {
	case n < 0:
		n = len(*k)
		*k = append(*k, b)
	case b.metrics:
		(*k)[n] = b
	}
	text := string(rune('A' + n%26))
	if n >= 26 {
		text += fmt.Sprint(n / 26)
	}
	return text
}

// isLimited reports whether a scenario ran on a cell, and was not for another one of the same gate.
func (t *behaviourTable) isLimited(scenario string, ran []int) bool {
	gates := map[scenarios.Gate]bool{}
	for _, i := range ran {
		gates[t.Cells[i].facts.Gate] = true
	}
	return slices.ContainsFunc(t.Cells, func(c behaviourCell) bool { return gates[c.facts.Gate] && c.elsewhere[scenario] })
}

func changedLines(a, b behaviour) []string {
	return slices.DeleteFunc(diffLines(a.comparable(b), b.comparable(a)), func(l string) bool { return strings.HasPrefix(l, "  ") })
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

// describeChanges shows what changed between cells. It returns nil where there is nothing to compare.
func describeChanges(set *scenarios.Set, plans []CellPlan, view record.View) []reports.Section {
	tables := compareCells(set, plans, view)
	if len(tables) == 0 {
		return nil
	}
	section := reports.Section{ID: "changes", Title: "What changed between cells", Text: []string{
		"The same letter in a row means the same behaviour: answers, messages, access reviews, audit fields and, where they can be seen, counters.",
	}}
	for _, t := range tables {
		section.Text = append(section.Text,
			fmt.Sprintf("%s: %s with more than one behaviour, %d with one, %d written for some of the versions only.",
				t.title(), reports.Plural(len(t.Changed), "scenario"), len(t.Same), len(t.Limited)),
		)
		section.Tables = append(section.Tables, t.render()...)
	}
	return []reports.Section{section}
}

func (t *behaviourTable) title() string {
	if t.Chain == "" {
		return "Node and RBAC"
	}
	return "Authorizer chain " + t.Chain
}

// render returns the tables of what changed, of how it changed, and of what is written for some of the versions.
func (t *behaviourTable) render() (tables []reports.Table) {
	letters := reports.Table{Title: t.title() + ": which cells behaved alike", Columns: []string{"Scenario"}}
	for _, c := range t.Cells {
		letters.Columns = append(letters.Columns, c.name)
	}
	changeTable := reports.Table{Title: t.title() + ": what changed", Columns: []string{"Scenario", "From", "To", "Change"}}
	for _, row := range t.Changed {
		marks := seq.Map(row.Letters, func(letter string) string { return cmp.Or(letter, "·") })
		letters.Rows = append(letters.Rows, reports.Row{Cells: append([]string{row.Scenario}, marks...)})
		changeTable.Rows = append(changeTable.Rows, row.render()...)
	}
	limitedTable := reports.Table{
		Title:   t.title() + ": written for some of the versions only",
		Columns: []string{"Scenario", "Needs", "Description"},
	}
	for _, s := range t.Limited {
		limitedTable.Rows = append(limitedTable.Rows, reports.Row{Cells: []string{s.ID, describeRequirements(s.Requires), s.Description}})
	}
	return seq.Filter([]reports.Table{letters, changeTable, limitedTable}, func(t reports.Table) bool { return len(t.Rows) > 0 })
}

// render returns a line for each change of a scenario, or one that says why there is none to be told.
func (r behaviourRow) render() (rows []reports.Row) {
	switch {
	case r.Chance:
		return []reports.Row{{Cells: []string{r.Scenario, "", "", "left to chance by the server"}}}
	case len(r.Steps) == 0:
		return []reports.Row{{Cells: []string{r.Scenario, "", "", "depends on the gate, not on the version"}}}
	}
	for _, step := range r.Steps {
		for _, line := range step.Lines {
			rows = append(rows, reports.Row{Cells: []string{r.Scenario, step.From, step.To, line}})
		}
	}
	return rows
}

// describeRequirements says what a scenario needs of its target.
func describeRequirements(r scenarios.Requires) string {
	gate := string(r.Gate)
	if r.Gate == scenarios.GateAny {
		gate = ""
	}
	var parts []string
	for _, p := range [][2]string{{"Kubernetes ", r.Kubernetes}, {"binary ", r.Binary}, {"gate ", gate}, {"authorizer chain ", r.Chain}} {
		if p[1] != "" {
			parts = append(parts, p[0]+p[1])
		}
	}
	parts = append(parts, seq.Map(r.Capabilities, func(c scenarios.Capability) string { return string(c) })...)
	return cmp.Or(strings.Join(parts, ", "), "any target")
}
