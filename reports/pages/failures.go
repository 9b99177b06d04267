package pages

import (
	_ "embed" // the template

	"github.com/authzconf/authzconf/reports"
)

//go:embed failures.html.tmpl
var failuresTemplate string

var failuresSection = section{name: "failures", template: failuresTemplate, views: viewFailures}

// These limits say how much of the failures is shown, because a page has to open even if everything failed.
const (
	// openFailures are shown opened.
	openFailures = 10
	// fullFailures and fullLength limit how many failures are shown completely, by their number and by the length of
	// the texts.
	fullFailures = 100
	fullLength   = 150_000
	// briefFailures is how many failures are shown in one line each, after those that are shown completely.
	briefFailures = 300
	briefLength   = 160
)

// failuresView has the failures by how much of them is shown.
type failuresView struct {
	Full  []shownFailure
	Brief []shownFailure
	// More is how many failures are not shown at all.
	More int
}

type shownFailure struct {
	failure
	Mark reports.Mark
	Open bool
	Line string
}

func viewFailures(p *page) ([]view, error) {
	n := len(p.failures.Full) + len(p.failures.Brief) + p.failures.More
	if n == 0 {
		return nil, nil
	}
	return showView(view{ID: "failures", Title: "Failures", Count: n, Data: p.failures})
}

// chooseFailures decides how much of each failure is shown.
func chooseFailures(failures []failure) (v failuresView) {
	length := 0
	for i, f := range failures {
		view := shownFailure{failure: f, Mark: f.Result.Mark(), Open: i < openFailures, Line: describeFailure(f, briefLength)}
		length += measureFailure(f)
		fits := length <= fullLength
		switch {
		case i == 0, fits && i < fullFailures:
			v.Full = append(v.Full, view)
		case len(v.Brief) < briefFailures:
			v.Brief = append(v.Brief, view)
		default:
			v.More++
		}
	}
	return v
}

// describeFailure returns in one line what is wrong.
func describeFailure(f failure, length int) string {
	if len(f.Differences) > 0 {
		d := f.Differences[0]
		return reports.Ellipsis(d.Field+": expected "+d.Want+", observed "+d.Got, length)
	}
	return reports.Ellipsis(reports.FirstLine(f.Reason), length)
}

// measureFailure returns about how many characters it takes to show a failure in full.
func measureFailure(f failure) int {
	n := len(f.Reason)
	for _, d := range f.Differences {
		n += len(d.Field) + len(d.Want) + len(d.Got)
	}
	for _, line := range f.Details {
		n += len(line)
	}
	for _, t := range f.Tables {
		for _, row := range t.Rows {
			for _, text := range row.Cells {
				n += len(text)
			}
		}
	}
	for _, e := range f.Evidence {
		n += len(e.Path)
	}
	for _, name := range f.Cases {
		n += len(name)
	}
	return n
}
