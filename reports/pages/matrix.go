package pages

import (
	_ "embed" // the template
	"fmt"
	"path"
	"slices"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

//go:embed matrix.html.tmpl
var matrixTemplate string

// matrixSection shows every case in every group.
var matrixSection = section{name: "matrix", template: matrixTemplate, views: viewMatrix}

const (
	// wordColumns is the largest number of groups for which a mark is shown with its word.
	wordColumns = 4
	// markColumns is the largest number of groups for which each has a column. With more groups, a row counts the
	// marks.
	markColumns = 12
	// linkedCells is the largest number of cells for which each links to its evidence. With more the page would be too
	// large.
	linkedCells = 4000
)

type matrixView struct {
	// Layout is words, marks or counts, depending on how much space a row has.
	Layout string
	// Columns are the names of the groups, unless the rows count marks.
	Columns []string
	Groups  int
	// Levels is not empty if cases have levels.
	Levels  []scenarios.Level
	Tiles   []tile
	Cases   int
	Folders []matrixFolder
}

// Width returns the number of columns of the table.
func (v matrixView) Width() int {
	n := 1 + max(1, len(v.Columns))
	if len(v.Levels) > 0 {
		n++
	}
	return n
}

// matrixFolder has the rows of cases whose names begin alike, or of one group.
type matrixFolder struct {
	Name string
	Rows []*matrixRow
}

// matrixRow is one case.
type matrixRow struct {
	Name  string
	Level scenarios.Level
	Cells []matrixCell
	Notes []string
}

// matrixCell is a verdict, or how many groups had it. One without a mark is for a case that the group does not have.
type matrixCell struct {
	reports.Mark
	Count int
	// Anchor is the anchor of the failure, and Path is the path of the evidence. A cell links to one of them.
	Anchor string
	Path   string
}

func viewMatrix(p *page) ([]view, error) {
	b := newMatrixBuilder(p)
	for i := range p.Groups {
		b.addGroup(i, &p.Groups[i])
	}
	if b.view.Cases == 0 {
		return nil, nil
	}
	if b.view.Layout == "counts" {
		b.countCells()
	}
	b.sortRows()
	return showView(view{ID: "cases", Title: "All cases", Count: b.view.Cases, Data: b.view})
}

// matrixBuilder arranges the cases of groups in rows and folders.
type matrixBuilder struct {
	page    *page
	view    matrixView
	anchors map[string]string
	// separate is true if no case is in two groups. Then a group is shown as a folder and not as a column.
	separate bool
	linked   bool
	folders  map[string]int
	rows     map[string]*matrixRow
}

func newMatrixBuilder(p *page) *matrixBuilder {
	b := &matrixBuilder{page: p, folders: map[string]int{}, rows: map[string]*matrixRow{}, separate: areSeparate(p.Groups)}
	b.anchors = linkFailures(p.failures)
	b.view.Groups, b.view.Tiles = len(p.Groups), listTiles(p.Counts())
	cells := 0
	for _, g := range p.Groups {
		cells += len(g.Cases) + len(g.NotRun)
		if !b.separate {
			b.view.Columns = append(b.view.Columns, g.Name)
		}
	}
	b.linked = cells <= linkedCells
	switch n := len(b.view.Columns); {
	case n <= wordColumns:
		b.view.Layout = "words"
	case n <= markColumns:
		b.view.Layout = "marks"
	default:
		b.view.Layout, b.view.Columns, b.linked = "counts", nil, false
	}
	if hasLevels(p.Groups) {
		b.view.Levels = listLevels(p.Report)
	}
	return b
}

// areSeparate reports whether there are several groups, and no case is in two of them.
func areSeparate(groups []reports.Group) bool {
	seen := map[string]bool{}
	for _, g := range groups {
		for _, name := range namesOf(g) {
			if seen[name] {
				return false
			}
			seen[name] = true
		}
	}
	return len(groups) > 1
}

func namesOf(g reports.Group) (names []string) {
	for _, r := range g.Cases {
		names = append(names, r.Case)
	}
	for _, o := range g.NotRun {
		names = append(names, o.Case)
	}
	return names
}

// linkFailures returns the anchor of the failure that each group and case is part of, if it is shown.
func linkFailures(failures failuresView) map[string]string {
	anchors := map[string]string{}
	for _, f := range slices.Concat(failures.Full, failures.Brief) {
		for _, group := range f.Groups {
			for _, name := range f.Cases {
				anchors[makeAnchor(group, name)] = f.Anchor
			}
		}
	}
	return anchors
}

func (b *matrixBuilder) addGroup(i int, g *reports.Group) {
	for _, r := range g.Cases {
		row := b.findRow(g.Name, r.Case, r.Level)
		cell := matrixCell{Mark: r.Mark()}
		anchor, failed := b.anchors[makeAnchor(g.Name, r.Case)]
		switch {
		case failed && r.Bad():
			cell.Anchor = anchor
		case b.linked && len(r.Evidence) > 0 && isEvidencePath(r.Evidence[0]):
			cell.Path = r.Evidence[0]
		}
		b.setCell(row, i, cell)
		row.addNotes(g.Name, r, b.view.Layout)
	}
	for _, o := range g.NotRun {
		b.setCell(b.findRow(g.Name, o.Case, o.Level), i, matrixCell{Mark: o.Mark()})
	}
}

// findRow returns the row of a case, and adds it if there is none.
func (b *matrixBuilder) findRow(group, name string, level scenarios.Level) *matrixRow {
	folderName, base := path.Dir(name), path.Base(name)
	key := name
	if b.separate {
		folderName, base, key = group, name, group+"\n"+name
	}
	if row, ok := b.rows[key]; ok {
		return row
	}
	row := &matrixRow{Name: base, Level: level}
	b.rows[key] = row
	at, known := b.folders[folderName]
	if !known {
		at = len(b.view.Folders)
		b.folders[folderName] = at
		b.view.Folders = append(b.view.Folders, matrixFolder{Name: folderName})
	}
	b.view.Folders[at].Rows = append(b.view.Folders[at].Rows, row)
	b.view.Cases++
	return row
}

func (b *matrixBuilder) setCell(row *matrixRow, group int, cell matrixCell) {
	if b.separate {
		row.Cells = []matrixCell{cell}
		return
	}
	if row.Cells == nil {
		row.Cells = make([]matrixCell, b.view.Groups)
	}
	row.Cells[group] = cell
}

// sortRows sorts the rows by name if they have cells of several groups, because a case that the first group does not
// run would be in the wrong place. The cases of a single group stay in its order.
func (b *matrixBuilder) sortRows() {
	if b.separate || b.view.Groups < 2 {
		return
	}
	slices.SortStableFunc(b.view.Folders, func(x, y matrixFolder) int { return compareNames(x.Name, y.Name) })
	for _, f := range b.view.Folders {
		slices.SortStableFunc(f.Rows, func(x, y *matrixRow) int { return compareNames(x.Name, y.Name) })
	}
}

// maxNotes limits the notes of a row. If there are many groups, the first notes are enough.
const maxNotes = 6

// addNotes adds notes about a result that is not among the failures.
func (row *matrixRow) addNotes(group string, r reports.Result, layout string) {
	if r.Bad() || layout == "counts" {
		return
	}
	lines := r.Details
	if r.KnownFailing != "" {
		lines = append([]string{fmt.Sprintf("known failing: %s: %s", r.KnownFailing, reports.FirstLine(r.Reason))}, lines...)
	}
	for _, line := range lines {
		if len(row.Notes) < maxNotes {
			row.Notes = append(row.Notes, group+": "+line)
		}
	}
}

// countCells replaces the marks of each row by their numbers. A mark of failures links to the first of them.
func (b *matrixBuilder) countCells() {
	for _, row := range b.rows {
		var counts reports.Counts
		anchors := map[reports.Mark]string{}
		for _, cell := range row.Cells {
			if cell.Class == "" {
				continue
			}
			*counts.Of(cell.Mark)++
			if anchors[cell.Mark] == "" {
				anchors[cell.Mark] = cell.Anchor
			}
		}
		row.Cells = nil
		for _, t := range listTiles(counts) {
			row.Cells = append(row.Cells, matrixCell{Mark: t.Mark, Count: t.Count, Anchor: anchors[t.Mark]})
		}
	}
}
