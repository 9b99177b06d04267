package reports

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

type folder struct {
	Name string
	Rows []matrixRow
}

type matrixRow struct {
	*scenarios.Scenario
	Open    bool
	Marks   []tile // without numbers; in the layout many one for each verdict, with its number
	Panels  []panel
	NotRun  []notRunHere
	Classes string // of all its marks, for the filter
	Packed  int    // which pack has its panels; 0: they are in the page as they are
}

// notRunHere is on how many cells a scenario was not run for one kind of reason. Those of the selection are in
// report.yaml, cell by cell: they follow from what the scenario requires.
type notRunHere struct {
	Count int
	Why   string
}

func (p *page) matrix() {
	all := slices.Clone(p.set.All())
	slices.SortFunc(all, func(a, b *scenarios.Scenario) int { return strings.Compare(a.ID, b.ID) })
	results, notRun := map[key]verdicts.Result{}, map[key]NotRun{}
	for _, c := range p.Report.Cells {
		for _, r := range c.Results {
			results[key{c.Name, r.Scenario}] = r
		}
		for _, n := range c.NotRun {
			notRun[key{c.Name, n.Scenario}] = n
		}
	}
	for _, s := range all {
		name := path.Dir(s.ID)
		if n := len(p.Folders); n == 0 || p.Folders[n-1].Name != name {
			p.Folders = append(p.Folders, folder{Name: name})
		}
		f := &p.Folders[len(p.Folders)-1]
		f.Rows = append(f.Rows, p.row(s, results, notRun))
	}
}

func (p *page) row(s *scenarios.Scenario, results map[key]verdicts.Result, notRun map[key]NotRun) matrixRow {
	row := matrixRow{Scenario: s}
	var groups []alike
	for i := range p.Report.Cells {
		c := &p.Report.Cells[i]
		k := key{c.Name, s.ID}
		if r, ok := results[k]; ok {
			groups = group(groups, seenResult(c, r, p.at[k]))
			row.Marks = append(row.Marks, tile{Mark: markOf(r)})
			continue
		}
		row.Marks = append(row.Marks, row.leftOut(notRun[k]))
	}
	for _, g := range groups {
		pn := g.panel(s)
		row.Panels = append(row.Panels, pn)
		if pn.Open {
			p.Failures = append(p.Failures, pn)
		}
	}
	row.Open = len(p.Failures) <= 2 && slices.ContainsFunc(row.Panels, func(pn panel) bool { return pn.Open })
	row.count(p.Layout == "many")
	return row
}

// count notes which verdicts there are, and where marks would not fit puts their number in place of them.
func (row *matrixRow) count(many bool) {
	var n Counts
	for _, m := range row.Marks {
		*n.Of(m.Mark)++
	}
	kinds := n.tiles(false)
	row.Classes = strings.Join(seq.Map(kinds, func(t tile) string { return t.Class }), " ")
	if many {
		row.Marks = kinds
	}
}

func (row *matrixRow) leftOut(n NotRun) tile {
	m, why := MarkNotRun, "for another version, gate or authorizer chain"
	switch n.Cause {
	case CauseTarget:
	case CauseUser:
		m, why = MarkSkipped, "left out by the user: "+n.Why
	default:
		m, why = MarkInvalid, "the report says nothing about it"
	}
	entry(&row.NotRun, func(h notRunHere) bool { return h.Why == why }, notRunHere{Why: why}).Count++
	return tile{Mark: m}
}

type seen struct {
	cell      *Cell
	result    verdicts.Result
	evidence  *verdicts.Evidence // nil if there is none
	behaviour seenBehaviour
	control   []string
}

func seenResult(c *Cell, r verdicts.Result, e *verdicts.Evidence) seen {
	s := seen{cell: c, result: r, evidence: e}
	if e != nil {
		s.behaviour = behaviourOf(e)
		if e.Control != nil {
			s.control = verdicts.Behaviour(e.Control)
		}
	}
	return s
}

func (s seen) plain(text string) string {
	if s.evidence == nil {
		return text
	}
	return plainNames(s.evidence.Names, text)
}

// equal says whether two cells cannot be told apart by a reader: the same was seen, and the same made of it. What one of
// them cannot show does not count.
func (s seen) equal(o seen) bool {
	a, b := s.result, o.result
	return markOf(a) == markOf(b) && a.Verdict == b.Verdict && a.Blame == b.Blame && a.KnownFailing == b.KnownFailing &&
		s.plain(a.Reason) == o.plain(b.Reason) && (s.evidence == nil) == (o.evidence == nil) &&
		slices.EqualFunc(a.Differences, b.Differences, func(x, y verdicts.Difference) bool {
			return x.Step == y.Step && x.Field == y.Field && s.plain(x.Want) == o.plain(y.Want) && s.plain(x.Got) == o.plain(y.Got)
		}) && s.behaviour.equal(o.behaviour) && slices.Equal(s.control, o.control)
}

// alike are cells that cannot be told apart; one of them is shown.
type alike struct {
	shown seen
	all   []seen
}

// group puts what was seen on a cell beside its like. Of them the one that shows most is shown.
func group(groups []alike, s seen) []alike {
	g := entry(&groups, func(g alike) bool { return g.shown.equal(s) }, alike{shown: s})
	g.all = append(g.all, s)
	if s.behaviour.metrics && !g.shown.behaviour.metrics {
		g.shown = s
	}
	return groups
}

func (g alike) panel(s *scenarios.Scenario) panel {
	p := newPanel(s, g.shown.cell, g.shown.result, g.shown.evidence)
	for _, other := range g.all {
		if other.cell == g.shown.cell {
			continue
		}
		c := panelCell{Name: other.cell.Name, NotJudged: other.result.NotJudged}
		if other.evidence != nil {
			c.Evidence = evidencePath(other.cell.Name, s.ID)
		}
		p.Cells = append(p.Cells, c)
	}
	return p
}

// clientSteps show a run of a client: the command with its outcome, then its requests as request steps are shown.
func clientSteps(i int, bound *scenarios.Scenario, met []verdicts.Difference, r verdicts.Result, e *verdicts.Evidence, o *verdicts.Observation) []stepView {
	st := &bound.Steps[i]
	v := stepView{Number: i, Step: st, Bound: bound, Seen: o}
	if o == nil || o.Client == nil {
		v.Missing = "was not run"
		return []stepView{v}
	}
	v.Checks = checks(i, "", met, r.Differences)
	views := []stepView{v}
	for n := range o.Requests {
		one := stepView{Seen: &o.Requests[n]}
		if n < len(st.ExpectClient.Requests) {
			one = newStep(i, verdicts.ClientField(n), st.Kubectl.Step(st.ExpectClient.Requests[n]), bound, met, r, e, one.Seen)
		}
		one.Number, one.Title = i, fmt.Sprintf("request %d of the client", n)
		views = append(views, one)
	}
	return views
}

// observedLines tell a step in a line, and each request of a client in one more.
func observedLines(o *verdicts.Observation) []string {
	if o.Client == nil {
		return []string{requestLine(o) + ": " + answerLine(o)}
	}
	lines := []string{fmt.Sprintf("%s: %s: exit code %d", o.Request.Requestor, o.Client.Command, o.Client.ExitCode)}
	for i := range o.Requests {
		lines = append(lines, requestLine(&o.Requests[i])+": "+answerLine(&o.Requests[i]))
	}
	return lines
}
