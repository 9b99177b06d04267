package certify

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
)

// State is what is known of a level of a row.
type State string

// The states. A level that nobody could judge is never shown as granted.
const (
	Granted    State = "granted"
	NotGranted State = "not granted"
	NotJudged  State = "not judged"
)

// Row is one bundle.
type Row struct {
	*Certification
	// Levels has the state of each level that the page knows.
	Levels map[string]State
	// Problems say why the bundle cannot be believed; with none it was judged again and holds.
	Problems []string
	// Signature is shown as it is.
	Signature string
	// Made says who made it, as far as that is known.
	Made string
	// Path leads from the page to the bundle.
	Path string
}

// Page is a page of bundles.
type Page struct {
	// Levels are the columns.
	Levels []string
	Rows   []Row
	// Version is that of the harness which judged.
	Version string
}

var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed report.html.tmpl
	reportTemplate string
	//go:embed page.css
	pageStyle string

	pageFuncs = template.FuncMap{
		"style":   func() template.CSS { return template.CSS(pageStyle) },
		"short":   func(s string) string { return s[:min(len(s), 12)] },
		"day":     func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"path":    escapePath,
		"contact": contact,
		"symbol":  func(s State) string { return map[State]string{Granted: "✓", NotGranted: "✗"}[s] },
		"state":   func(states map[string]State, level string) State { return cmp.Or(states[level], NotJudged) },
		"class":   func(s State) string { return strings.ReplaceAll(string(s), " ", "-") },
		"why":     policy.Why,
	}
	manyPage = template.Must(template.New("page").Funcs(pageFuncs).Parse(pageTemplate))
	onePage  = template.Must(template.New("report").Funcs(pageFuncs).Parse(reportTemplate))
)

// HTML is the certification as a page, one file without anything to fetch.
func (c *Certification) HTML() ([]byte, error) {
	var out bytes.Buffer
	err := onePage.Execute(&out, struct {
		*Certification
		Title string
	}{c, c.title()})
	return out.Bytes(), err
}

// HTML is the page, one file without anything to fetch. The rows are sorted by vendor, product, and date, the
// newest first.
func (p Page) HTML() ([]byte, error) {
	p.Rows = slices.Clone(p.Rows)
	slices.SortStableFunc(p.Rows, func(x, y Row) int {
		return cmp.Or(strings.Compare(strings.ToLower(x.Vendor), strings.ToLower(y.Vendor)), strings.Compare(x.Name, y.Name), y.Started.Compare(x.Started), strings.Compare(x.Path, y.Path))
	})
	var out bytes.Buffer
	err := manyPage.Execute(&out, p)
	return out.Bytes(), err
}

// Believed counts the rows that hold.
func (p Page) Believed() (n int) {
	for _, r := range p.Rows {
		if len(r.Problems) == 0 {
			n++
		}
	}
	return n
}

// escapePath makes a relative link of a slash-separated path.
func escapePath(path string) string { return (&url.URL{Path: "./" + path}).EscapedPath() }

// contact is where a contact leads: a page or a mail address.
func contact(s string) string {
	if strings.HasPrefix(s, "https://") {
		return s
	}
	return "mailto:" + s
}
