package reports

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// page is what report.html shows, in the order it shows it.
type page struct {
	Report    *ConformanceReport
	Name      string // of the implementation, with its version
	Outcome   mark
	Totals    []tile
	Facts     []fact
	Cells     []cellView
	Levels    []scenarios.Level
	Failures  []failure
	Findings  []findingView
	Folders   []folder
	Filters   []tile
	Dense     bool // many cells: marks without words
	Scenarios int
}

// mark is a verdict as it is shown: by word and symbol, never by colour alone.
type mark struct{ Class, Symbol, Word string }

// tile is a number with what it counts.
type tile struct {
	mark
	Count int
}

type fact struct{ Name, Value string }

// cellView is one target: asked beside seen, and its counts.
type cellView struct {
	*Cell
	Trusted bool
	Asked   []askedRow
	Levels  []levelCounts
	Ready   string
	Wall    string
	NotRun  []notRunGroup
}

// askedRow is one property of a target as asked and as read back.
type askedRow struct{ What, Asked, Seen, Source string }

// levelCounts are the counts of one level as tiles; Share is of what was for
// the cell.
type levelCounts struct {
	Level scenarios.Level
	Tiles []tile
	Total int
}

// failure is an entry of the list at the top: a scenario that failed alike on
// some cells. Names are those of the scenario, for the unique ones differ.
type failure struct {
	Scenario string
	Level    scenarios.Level
	Mark     mark
	Blame    verdicts.Blame
	Step     int
	Field    string // of the first difference; empty if there is none
	Want     string
	Got      string
	More     int // further differences
	Reason   string
	Cells    []failureCell
}

type failureCell struct{ Name, Anchor string }

// findingView is one divergence with what was seen, grouped by equal sights.
type findingView struct {
	Scenario, Anchor, Source, Documented, Description string
	Seen                                              []seenView
}

type seenView struct {
	Cells []string
	Mark  mark
	Lines []string
}

// folder groups the matrix rows by the folder of their scenarios.
type folder struct {
	Name string
	Rows []matrixRow
}

// matrixRow is one scenario on all cells.
type matrixRow struct {
	*scenarios.Scenario
	Anchor     string
	Short      string
	Open       bool
	Requires   string
	TwinAnchor string
	File       string
	Marks      []cellMark
	Panels     []panel
	NotRun     []notRunHere
	Classes    string // of all its marks, for the filter
}

// cellMark is a matrix entry; Anchor is empty where there is nothing to open.
type cellMark struct {
	mark
	Cell, Anchor string
}

type notRunHere struct{ Cell, Why string }

var (
	markPassed       = mark{"pass", "✓", "passed"}
	markFailed       = mark{"fail", "✗", "failed"}
	markKnown        = mark{"known", "≈", "known failing"}
	markInvalid      = mark{"invalid", "!", "invalid"}
	markNotSupported = mark{"unsupported", "⊘", "not supported"}
	markSkipped      = mark{"skipped", "»", "skipped"}
	markNotRun       = mark{"na", "·", "not for this cell"}
)

func markOf(r verdicts.Result) mark {
	switch {
	case r.KnownFailing != "":
		return markKnown
	case r.Verdict == verdicts.Passed:
		return markPassed
	case r.Verdict == verdicts.Failed:
		return markFailed
	case r.Verdict == verdicts.NotSupported:
		return markNotSupported
	case r.Verdict == verdicts.Skipped:
		return markSkipped
	}
	return markInvalid
}

// outcomeMark is the overall outcome.
func outcomeMark(o Outcome) mark {
	switch o.Result {
	case RunPassed:
		return markPassed
	case RunFailed:
		return markFailed
	}
	return markInvalid
}

// tiles lists counts in the order of verdicts.
func (c Counts) tiles() []tile {
	return []tile{
		{markPassed, c.Passed}, {markFailed, c.Failed}, {markKnown, c.KnownFailing}, {markInvalid, c.Invalid},
		{markNotSupported, c.NotSupported}, {markSkipped, c.Skipped}, {markNotRun, c.NotApplicable},
	}
}

// anchor is the fragment of a scenario, or of one on a cell.
func anchor(parts ...string) string {
	return strings.NewReplacer(" ", "_", "\"", "_").Replace(strings.Join(parts, ":"))
}

// newPage collects what the page shows.
func newPage(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) *page {
	p := &page{Report: r, Name: strings.TrimSpace(r.Implementation.Name + " " + r.Implementation.Version), Outcome: outcomeMark(r.Outcome), Levels: Levels(), Dense: len(r.Cells) > 4, Scenarios: len(set.All())}
	var total Counts
	for i := range r.Cells {
		p.Cells = append(p.Cells, newCellView(&r.Cells[i]))
		for _, n := range r.Cells[i].Summary {
			total = total.add(n)
		}
	}
	p.Totals = total.tiles()
	for _, t := range p.Totals {
		if t.Count > 0 {
			p.Filters = append(p.Filters, t)
		}
	}
	p.Facts = facts(r)
	p.matrix(set, index(evidence))
	p.findings(set)
	return p
}

func facts(r *ConformanceReport) []fact {
	all := []fact{
		{"Implementation", implementationName(r)},
		{"authzconf", r.SuiteVersion},
		{"Scenarios", plural(len(r.Scenarios), "scenario") + ", digest " + short(r.ScenariosDigest)},
		{"Run", r.Started.UTC().Format("2006-01-02 15:04:05 MST") + ", " + r.Finished.Sub(r.Started).Round(100*time.Millisecond).String()},
		{"Seed", fmt.Sprint(r.Seed)},
	}
	if len(r.Command) > 0 {
		all = append(all, fact{"Command", strings.Join(r.Command, " ")})
	}
	return all
}

func newCellView(c *Cell) cellView {
	w := c.Witness
	v := cellView{
		Cell: c, Trusted: c.Problem == "" && len(w.Mismatches) == 0,
		Ready: fmt.Sprintf("%.1f s", c.ReadySeconds), Wall: fmt.Sprintf("%.1f s", c.WallSeconds), NotRun: notRunGroups(c),
	}
	gate := askedRow{"Gate, by its metric", c.Gate, orNone(w.GateMetric), "kubernetes_feature_enabled"}
	if w.ExpectedGate != "" && w.ExpectedGate != c.Gate {
		gate.Asked += ", so " + w.ExpectedGate
	}
	v.Asked = []askedRow{
		{"Version", c.Kubernetes, orNone(w.GitVersion), "/version"},
		{"Emulated version", orWord(c.Emulated, "none"), orNone(w.EmulatedVersion), "/version"},
		gate,
	}
	if w.GateProbe != nil {
		v.Asked = append(v.Asked, askedRow{"Gate, by a probe", gate.Asked, w.GateProbe.Gate, fmt.Sprintf("%d %s", w.GateProbe.Code, w.GateProbe.Message)})
	}
	for i, a := range w.AskedAuthorizers {
		row := askedRow{fmt.Sprintf("Authorizer %d", i+1), a.Type + " " + a.Name, "nothing that proves it", ""}
		for _, seen := range w.SeenAuthorizers {
			if seen.Authorizer == a {
				row.Seen, row.Source = "there", seen.Evidence
			}
		}
		v.Asked = append(v.Asked, row)
	}
	for _, level := range Levels() {
		n := c.Summary[level]
		lc := levelCounts{Level: level, Total: n.Executed() + n.NotSupported + n.Skipped}
		for _, t := range n.tiles() {
			if t.Count > 0 {
				lc.Tiles = append(lc.Tiles, t)
			}
		}
		v.Levels = append(v.Levels, lc)
	}
	return v
}

// matrix makes the rows, grouped by folder, and the list of failures.
func (p *page) matrix(set *scenarios.Set, at map[key]*verdicts.Evidence) {
	all := slices.Clone(set.All())
	slices.SortFunc(all, func(a, b *scenarios.Scenario) int { return strings.Compare(a.ID, b.ID) })
	for _, s := range all {
		name := path.Dir(s.ID)
		if n := len(p.Folders); n == 0 || p.Folders[n-1].Name != name {
			p.Folders = append(p.Folders, folder{Name: name})
		}
		f := &p.Folders[len(p.Folders)-1]
		f.Rows = append(f.Rows, p.row(s, at))
	}
}

func (p *page) row(s *scenarios.Scenario, at map[key]*verdicts.Evidence) matrixRow {
	row := matrixRow{
		Scenario: s, Anchor: anchor(s.ID), Short: path.Base(s.ID), Requires: requiresText(s.Requires),
		File: path.Join(scenariosDir, s.ID+".yaml"),
	}
	if s.Twin != "" {
		row.TwinAnchor = anchor(s.Twin)
	}
	var classes []string
	for i := range p.Cells {
		c := p.Cells[i].Cell
		m := row.fill(c, at[key{c.Name, s.ID}])
		row.Marks = append(row.Marks, m)
		if !slices.Contains(classes, m.Class) {
			classes = append(classes, m.Class)
		}
	}
	row.Classes = strings.Join(classes, " ")
	for i := range row.Panels {
		if row.Panels[i].Open {
			p.fail(&row.Panels[i], at[key{row.Panels[i].Cell, s.ID}])
		}
	}
	row.Open = len(p.Failures) <= 2 && slices.ContainsFunc(row.Panels, func(pn panel) bool { return pn.Open })
	return row
}

// fail adds a panel to the list of failures.
func (p *page) fail(pn *panel, e *verdicts.Evidence) {
	plain := func(text string) string {
		if e == nil {
			return text
		}
		return plainNames(e.Names, text)
	}
	r := pn.Result
	f := failure{Scenario: r.Scenario, Level: r.Level, Mark: pn.Mark, Blame: r.Blame}
	if len(r.Differences) > 0 {
		d := r.Differences[0]
		f.Step, f.Field, f.Want, f.Got, f.More = d.Step, d.Field, plain(d.Want), plain(d.Got), len(r.Differences)-1
	} else {
		f.Reason = plain(r.Reason)
	}
	cell := failureCell{pn.Cell, pn.Anchor}
	for i := range p.Failures {
		other := p.Failures[i]
		other.Cells = nil
		if reflect.DeepEqual(f, other) {
			p.Failures[i].Cells = append(p.Failures[i].Cells, cell)
			return
		}
	}
	f.Cells = []failureCell{cell}
	p.Failures = append(p.Failures, f)
}

// fill adds what one cell says of the scenario, and returns its mark.
func (row *matrixRow) fill(c *Cell, e *verdicts.Evidence) cellMark {
	for _, r := range c.Results {
		if r.Scenario != row.ID {
			continue
		}
		pn := newPanel(row.Scenario, c, r, e)
		row.Panels = append(row.Panels, pn)
		return cellMark{pn.Mark, c.Name, pn.Anchor}
	}
	for _, n := range c.NotRun {
		if n.Scenario != row.ID {
			continue
		}
		row.NotRun = append(row.NotRun, notRunHere{c.Name, n.Why})
		if n.Cause == CauseUser {
			return cellMark{markSkipped, c.Name, ""}
		}
		return cellMark{markNotRun, c.Name, ""}
	}
	row.NotRun = append(row.NotRun, notRunHere{c.Name, "the report says nothing about it"})
	return cellMark{markInvalid, c.Name, ""}
}

// findings groups the report's findings by scenario, and cells that show the
// same.
func (p *page) findings(set *scenarios.Set) {
	for _, f := range p.Report.Findings {
		n := len(p.Findings)
		if n == 0 || p.Findings[n-1].Scenario != f.Scenario {
			v := findingView{Scenario: f.Scenario, Anchor: anchor(f.Scenario), Source: f.Source, Documented: f.Documented}
			if s, ok := set.Get(f.Scenario); ok {
				v.Description = s.Description
			}
			p.Findings = append(p.Findings, v)
			n++
		}
		v := &p.Findings[n-1]
		m := markOf(verdicts.Result{Verdict: f.Verdict})
		i := slices.IndexFunc(v.Seen, func(s seenView) bool { return s.Mark == m && slices.Equal(s.Lines, f.Seen) })
		if i < 0 {
			v.Seen = append(v.Seen, seenView{Mark: m, Lines: f.Seen})
			i = len(v.Seen) - 1
		}
		v.Seen[i].Cells = append(v.Seen[i].Cells, f.Cell)
	}
}

// requiresText words what a scenario needs of a target.
func requiresText(r scenarios.Requires) string {
	var parts []string
	if r.Kubernetes != "" {
		parts = append(parts, "Kubernetes "+r.Kubernetes)
	}
	if r.Binary != "" {
		parts = append(parts, "binary "+r.Binary)
	}
	if r.Gate != "" && r.Gate != scenarios.GateAny {
		parts = append(parts, "gate "+string(r.Gate))
	}
	if r.Chain != "" {
		parts = append(parts, "authorizer chain "+r.Chain)
	}
	for _, c := range r.Capabilities {
		parts = append(parts, string(c))
	}
	if len(parts) == 0 {
		return "any target"
	}
	return strings.Join(parts, ", ")
}
