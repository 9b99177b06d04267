package reports

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

type page struct {
	Report   *ConformanceReport
	Name     string // of the implementation, with its version
	Outcome  Mark
	Totals   Counts
	Levels   []scenarios.Level
	Failures []panel // what failed, alike on the cells of each
	Changes  []behaviourTable
	Findings []findingView
	Folders  []folder
	Layout   string // wide, dense or many: how much room each cell has in a row
	Base     string // where the page is that links lead to, of parts that are shown elsewhere

	set *scenarios.Set
	at  map[key]*verdicts.Evidence
}

type tile struct {
	Mark
	Count int
}

// findingView is one divergence with what was seen, grouped by equal sights.
type findingView struct {
	Finding
	Description, Base string

	Sights []sight
}

type sight struct {
	Finding
	Cells []string
}

func markOf(r verdicts.Result) Mark {
	if r.KnownFailing != "" {
		return MarkKnown
	}
	return VerdictMark(r.Verdict)
}

func bad(r verdicts.Result) bool {
	return r.KnownFailing == "" && (r.Verdict == verdicts.Failed || r.Verdict == verdicts.Invalid)
}

func (c Counts) tiles(zero bool) (all []tile) {
	for _, m := range Marks() {
		if n := *c.Of(m); zero || n > 0 {
			all = append(all, tile{m, n})
		}
	}
	return all
}

// Counts are those of all levels.
func (c *Cell) Counts() (all Counts) {
	for _, n := range c.Summary {
		all = all.add(n)
	}
	return all
}

// Trusted says whether the cell is what was asked for.
func (c *Cell) Trusted() bool { return c.Problem == "" && len(c.Witness.Mismatches) == 0 }

func anchor(parts ...string) string {
	return strings.NewReplacer(" ", "_", "\"", "_").Replace(strings.Join(parts, ":"))
}

func newPage(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) *page {
	p := &page{
		Report: r, Name: strings.TrimSpace(r.Implementation.Name + " " + r.Implementation.Version), Outcome: VerdictMark(r.Outcome.Result),
		Levels: Levels(), Layout: layout(len(r.Cells)), Changes: behaviourTables(r, evidence, set), set: set, at: index(evidence),
	}
	for i := range r.Cells {
		p.Totals = p.Totals.add(r.Cells[i].Counts())
	}
	p.matrix()
	for _, f := range r.Findings {
		p.find(f, set, "")
	}
	return p
}

// Took is how long a scenario took on a cell, 0 if there is no evidence of it.
func (p *page) Took(cell, scenario string) time.Duration {
	if e := p.at[key{cell, scenario}]; e != nil {
		return e.Ended.Sub(e.Started)
	}
	return 0
}

// layout says how rows show cells: as marks with words, as marks, or, where these would not fit, by their number.
func layout(cells int) string {
	switch {
	case cells > 12:
		return "many"
	case cells > 4:
		return "dense"
	}
	return "wide"
}

// find adds a finding of a report whose page is at base, beside those of its scenario that show the same.
func (p *page) find(f Finding, set *scenarios.Set, base string) {
	fresh := findingView{Finding: f, Base: base}
	if s, ok := set.Get(f.Scenario); ok {
		fresh.Description = s.Description
	}
	v := entry(&p.Findings, func(v findingView) bool { return v.Scenario == f.Scenario }, fresh)
	seen := entry(&v.Sights, func(s sight) bool { return s.Verdict == f.Verdict && slices.Equal(s.Seen, f.Seen) }, sight{Finding: f})
	if !slices.Contains(seen.Cells, f.Cell) {
		seen.Cells = append(seen.Cells, f.Cell)
	}
}

func requiresText(r scenarios.Requires) string {
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

// The page is one file without anything to fetch: style and script are put into it.
var (
	//go:embed report.html.tmpl
	pageTemplate string
	//go:embed report.css
	pageStyle string
	//go:embed report.js
	pageScript string

	pageTemplates = template.Must(template.New("report").Funcs(TextFuncs).Funcs(pageFuncs).Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(pageStyle) },
		"script": func() template.JS { return template.JS(pageScript) },
		"pre":    preformatted,
		"prose":  prose,
		"lines":  transcriptLines,
		"link":   func(s string) bool { return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") },
		"seen":   func(m []verdicts.MetricSample) bool { return m != nil },
	}).Parse(pageTemplate))
)

// preformatted escapes text between tags. Quotes are left alone, which makes JSON, most of the page, a fifth shorter.
func preformatted(text string) template.HTML {
	return template.HTML(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\x00", "\uFFFD").Replace(text))
}

var backticks = regexp.MustCompile("`([^`]+)`")

// prose escapes a document's text, which is Markdown as far as that: what is between backticks is code.
func prose(text string) template.HTML {
	return template.HTML(backticks.ReplaceAllString(template.HTMLEscapeString(text), "<code>$1</code>"))
}

// transcriptLines puts each review of a whole transcript on a line of its own.
func transcriptLines(field, text string) string {
	if field != "reviews" {
		return text
	}
	return strings.ReplaceAll(text, "; ", "\n")
}

const (
	// plainFailures is how many scenarios that failed are in the page as they are. It has to open where everything failed, too.
	plainFailures = 30
	// packSize is how much HTML is packed together: to open a row is to unpack all of its pack.
	packSize = 256 << 10
)

// packed is a pack of panels in a page.
var packed = regexp.MustCompile(`<script type="application/gzip">([^<]*)</script>`)

// renderHTML is report.html: what was judged and what failed, and behind it, packed, the panels of all other scenarios. The
// script unpacks them when a row is opened.
func renderHTML(p *page) ([]byte, error) {
	packs, err := p.pack()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := pageTemplates.Execute(&b, p); err != nil {
		return nil, err
	}
	// All that pages show was redacted already; this is for what a template might put together. A pack would look like a
	// token where there is none, so it is redacted before it is one.
	page := bytes.NewBufferString(Redact(b.String()))
	for i := range packs {
		page.WriteString("<script type=\"application/gzip\">")
		text := base64.NewEncoder(base64.StdEncoding, page)
		z, _ := gzip.NewWriterLevel(text, gzip.BestCompression) // the level is one of gzip's own
		_, err := io.WriteString(z, Redact(packs[i].String()))
		if err := errors.Join(err, z.Close(), text.Close()); err != nil {
			return nil, err
		}
		page.WriteString("</script>\n")
	}
	page.WriteString("</body></html>\n")
	return page.Bytes(), nil
}

// pack renders the panels that are not in the page as they are, and notes in their rows which pack they are in.
func (p *page) pack() (packs []bytes.Buffer, err error) {
	failed := 0
	for _, f := range p.Folders {
		for i := range f.Rows {
			row := &f.Rows[i]
			if slices.ContainsFunc(row.Panels, func(pn panel) bool { return pn.Open }) {
				if failed++; failed <= plainFailures {
					continue
				}
			}
			if n := len(packs); n == 0 || packs[n-1].Len() > packSize {
				packs = append(packs, bytes.Buffer{})
			}
			row.Packed = len(packs)
			if err := pageTemplates.ExecuteTemplate(&packs[row.Packed-1], "packed", row); err != nil {
				return nil, err
			}
		}
	}
	return packs, nil
}

// Shown is a report that was verified, as a site shows it.
type Shown struct {
	// Page is report.html as this authzconf makes it. Failures and Changes are parts of it, with links to it.
	Page              []byte
	Failures, Changes template.HTML
}

// Show makes what is shown of a report whose page is at base.
func (v *Verification) Show(base string) (s Shown, err error) {
	p := newPage(v.Report, v.Evidence, v.Set)
	if s.Page, err = renderHTML(p); err != nil {
		return s, err
	}
	p.Base = base
	s.Failures, err = p.part("failures")
	changes, err2 := p.part("changes")
	s.Changes = changes
	return s, errors.Join(err, err2)
}

func (p *page) part(name string) (template.HTML, error) {
	var b bytes.Buffer
	err := pageTemplates.ExecuteTemplate(&b, name, p)
	return template.HTML(strings.TrimSpace(Redact(b.String()))), err
}

// Divergences shows where documents and servers differ, as the reports at bases saw it, once if several did.
func Divergences(all []*Verification, bases []string) (template.HTML, error) {
	p := page{Base: "."}
	for i, v := range all {
		for _, f := range v.Report.Findings {
			p.find(f, v.Set, bases[i])
		}
	}
	slices.SortStableFunc(p.Findings, func(a, b findingView) int { return cmp.Compare(a.Scenario, b.Scenario) })
	return p.part("divergences")
}

// Style is that of report.html, for pages that show parts of it.
func Style() template.CSS { return template.CSS(pageStyle) }
