package reports

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

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
	Path      *pathView
	Changes   []behaviourTable
	Findings  []findingView
	Folders   []folder
	Filters   []tile
	Layout    string // wide, dense or many: how much room each cell has in a row
	Scenarios int
	Base      string // where the page is that links lead to, of parts that are shown elsewhere
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

// levelCounts are the counts of one level as tiles; Share is of what was for the cell.
type levelCounts struct {
	Level scenarios.Level
	Tiles []tile
	Total int
}

// failure is an entry of the list at the top: a scenario that failed alike on some cells. Names are those of the
// scenario, for the unique ones differ.
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
	Scenario, Anchor, Source, Documented, Description, Base string

	Seen []seenView
}

type seenView struct {
	Cells   []string
	Verdict verdicts.Verdict
	Mark    mark
	Lines   []string
}

var (
	markPassed       = mark{"pass", "✓", "passed"}
	markFailed       = mark{"fail", "✗", "failed"}
	markKnown        = mark{"known", "≈", "known failing"}
	markInvalid      = mark{"invalid", "!", "invalid"}
	markNotSupported = mark{"unsupported", "⊘", "not supported"}
	markSkipped      = mark{"skipped", "»", "skipped"}
	markNotRun       = mark{"na", "·", "not for this cell"}

	// allMarks are in the order in which they are shown.
	allMarks = []mark{markPassed, markFailed, markKnown, markInvalid, markNotSupported, markSkipped, markNotRun}
)

// verdictMarks are those of results; what is not here is invalid.
var verdictMarks = map[verdicts.Verdict]mark{
	verdicts.Passed: markPassed, verdicts.Failed: markFailed, verdicts.NotSupported: markNotSupported, verdicts.Skipped: markSkipped,
}

func markOf(r verdicts.Result) mark {
	if r.KnownFailing != "" {
		return markKnown
	}
	return cmp.Or(verdictMarks[r.Verdict], markInvalid)
}

// tiles lists the counts of marks, or only those that are not 0.
func (c Counts) tiles(zero bool) (all []tile) {
	for _, m := range allMarks {
		if n := *c.of(m); zero || n > 0 {
			all = append(all, tile{m, n})
		}
	}
	return all
}

// anchor is the fragment of a scenario, or of one on a cell.
func anchor(parts ...string) string {
	return strings.NewReplacer(" ", "_", "\"", "_").Replace(strings.Join(parts, ":"))
}

// newPage collects what the page shows.
func newPage(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) *page {
	p := &page{Report: r, Name: strings.TrimSpace(r.Implementation.Name + " " + r.Implementation.Version), Outcome: markOf(verdicts.Result{Verdict: r.Outcome.Result}), Levels: Levels(), Layout: layout(len(r.Cells)), Scenarios: len(set.All())}
	var total Counts
	for i := range r.Cells {
		p.Cells = append(p.Cells, newCellView(&r.Cells[i]))
		for _, n := range r.Cells[i].Summary {
			total = total.add(n)
		}
	}
	p.Totals, p.Filters = total.tiles(true), total.tiles(false)
	p.Facts = facts(r)
	p.Changes = behaviourTables(r, evidence, set)
	if r.Path != nil {
		p.Path = newPathView(r, evidence, set)
	}
	p.matrix(set, index(evidence))
	p.Findings = groupFindings(r.Findings, set)
	return p
}

// layout says how rows show cells: as marks with words, as marks, or, where these would not fit, by their
// number.
func layout(cells int) string {
	switch {
	case cells > 12:
		return "many"
	case cells > 4:
		return "dense"
	}
	return "wide"
}

func facts(r *ConformanceReport) []fact {
	all := []fact{
		{"Implementation", implementationName(r)},
		{"authzconf", r.SuiteVersion},
		{"Scenarios", Plural(len(r.Scenarios), "scenario") + ", digest " + short(r.ScenariosDigest)},
		{"Run", r.Started.UTC().Format("2006-01-02 15:04:05 MST") + ", " + r.Finished.Sub(r.Started).Round(100*time.Millisecond).String() + ", " + r.Load()},
		{"Seed", fmt.Sprint(r.Seed)},
	}
	for _, p := range r.Programs() {
		all = append(all, fact{p.Title(), p.Origin + "; SHA-256 " + p.SHA256})
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
	gate := askedRow{"Gate, by its metric", c.Gate, cmp.Or(w.GateMetric, "nothing"), "kubernetes_feature_enabled"}
	if w.ExpectedGate != "" && w.ExpectedGate != c.Gate {
		gate.Asked += ", so " + w.ExpectedGate
	}
	v.Asked = []askedRow{
		{"Version", c.Kubernetes, cmp.Or(w.GitVersion, "nothing"), "/version"},
		{"Emulated version", cmp.Or(c.Emulated, "none"), cmp.Or(w.EmulatedVersion, "nothing"), "/version"},
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
		v.Levels = append(v.Levels, levelCounts{level, n.tiles(false), n.Executed() + n.NotSupported + n.Skipped})
	}
	return v
}

// groupFindings groups findings by scenario, and cells that show the same.
func groupFindings(all []Finding, set *scenarios.Set) []findingView {
	var views []findingView
	for _, f := range all {
		n := len(views)
		if n == 0 || views[n-1].Scenario != f.Scenario {
			v := findingView{Scenario: f.Scenario, Anchor: anchor(f.Scenario), Source: f.Source, Documented: f.Documented}
			if s, ok := set.Get(f.Scenario); ok {
				v.Description = s.Description
			}
			views = append(views, v)
			n++
		}
		v := &views[n-1]
		seen := entry(&v.Seen, func(s *seenView) bool { return s.Verdict == f.Verdict && slices.Equal(s.Lines, f.Seen) },
			seenView{Verdict: f.Verdict, Mark: markOf(verdicts.Result{Verdict: f.Verdict}), Lines: f.Seen})
		seen.Cells = append(seen.Cells, f.Cell)
	}
	return views
}

// requiresText words what a scenario needs of a target.
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
	for _, c := range r.Capabilities {
		parts = append(parts, string(c))
	}
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

	pageTemplates = template.Must(template.New("report").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(pageStyle) },
		"script": func() template.JS { return template.JS(pageScript) },
		"plural": Plural,
		"pre":    preformatted,
		"lines":  transcriptLines,
		"link":   func(s string) bool { return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") },
		"join":   func(names []string) string { return strings.Join(names, ", ") },
	}).Parse(pageTemplate))
)

// preformatted escapes text between tags. Quotes are left alone there, which makes JSON, the greatest part of
// the page, a fifth shorter.
func preformatted(text string) template.HTML {
	return template.HTML(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\x00", "\uFFFD").Replace(text))
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
