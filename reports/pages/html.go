package pages

import (
	"bytes"
	_ "embed" // the template, the style and the script
	"html/template"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/reports"
)

// The page is one file that loads nothing else, because it contains its style and its script.
var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// templates are the templates of the page and of all its sections.
var templates = parseTemplates()

func parseTemplates() *template.Template {
	t := template.New("page").Funcs(template.FuncMap{
		"style":   func() template.CSS { return template.CSS(pageStyle) },
		"script":  func() template.JS { return template.JS(pageScript) },
		"prose":   formatProse,
		"verdict": reports.VerdictMark,
		"tiles":   listTiles,
		"plural":  reports.Plural,
		"join":    strings.Join,
		"link":    isWebAddress,
		"local":   isEvidencePath,
		"compare": splitDifference,
		"numeric": isNumeric,
	})
	template.Must(t.Parse(pageTemplate))
	for _, s := range sections {
		template.Must(t.New(s.name).Parse(s.template))
	}
	return t
}

// page is what the sections of report.html are made from.
type page struct {
	*reports.Report
	// failures are the failures of all groups, by how much of them is shown.
	failures failuresView
}

func newPage(r *reports.Report) *page {
	return &page{Report: r, failures: chooseFailures(foldFailures(r.Groups))}
}

// head is the beginning of the page.
type head struct {
	Title      string
	Product    string
	Outcome    reports.Mark
	Reasons    []string
	Tiles      []tile
	Cases      string
	NotCovered []string
	Facts      []fact
	Notes      []string
	Sections   []renderedView
}

func renderHTML(r *reports.Report) ([]byte, error) {
	p := newPage(r)
	rendered, err := renderSections(p)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = templates.Execute(&b, head{
		Title: nameSubject(r.Subject), Product: r.Product, Outcome: reports.VerdictMark(r.Outcome.Result),
		Reasons: r.Outcome.Reasons, NotCovered: r.Outcome.NotCovered, Notes: r.Outcome.Notes,
		Tiles: listTiles(r.Counts()), Cases: describeSize(r), Facts: listFacts(r), Sections: rendered,
	})
	return b.Bytes(), err
}

// tile is a mark with how often it was given.
type tile struct {
	reports.Mark
	Count int
}

// listTiles returns the marks that were given.
func listTiles(c reports.Counts) (tiles []tile) {
	for _, m := range reports.Marks() {
		if n := *c.Of(m); n > 0 {
			tiles = append(tiles, tile{m, n})
		}
	}
	return tiles
}

var backticks = regexp.MustCompile("`([^`]+)`")

// formatProse escapes a text in which code is between backticks.
func formatProse(text string) template.HTML {
	return template.HTML(backticks.ReplaceAllString(template.HTMLEscapeString(text), "<code>$1</code>"))
}

// isWebAddress reports whether a text is the address of a page that a link may lead to.
func isWebAddress(s string) bool {
	return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://")
}

// isEvidencePath reports whether a path is that of a file in a folder of the report.
func isEvidencePath(path string) bool {
	top, _, nested := strings.Cut(path, "/")
	return nested && fs.ValidPath(path) && !strings.ContainsAny(top, ":\\")
}

// isNumeric reports whether a column of a table is aligned as numbers.
func isNumeric(t reports.Table, column int) bool {
	return slices.Contains(t.Numeric, column)
}
