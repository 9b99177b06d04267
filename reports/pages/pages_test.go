package pages

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/verdicts"
)

var update = flag.Bool("update", false, "write the golden files again")

// renderPages returns the pages of a report.
func renderPages(t *testing.T, r *reports.Report) map[string][]byte {
	t.Helper()
	pages, err := Render(r)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// looks matches the parts of report.html that golden files leave out, because they change for other reasons than the
// rest.
var looks = regexp.MustCompile(`(?s)(<style>).*?(</style>)|(<script>).*?(</script>)|(<svg)[^>]*>.*?(</svg>)`)

func TestGolden(t *testing.T) {
	for name, r := range map[string]*reports.Report{"mixed": mixedReport(), "dice": diceReport()} {
		files := renderPages(t, r)
		files[reports.HTMLFile] = looks.ReplaceAll(files[reports.HTMLFile], []byte("$1$2$3$4$5>$6"))
		files["terminal.txt"] = []byte(printSummary(t, r, SummaryOptions{Folder: "out"}))
		for file, got := range files {
			compareGolden(t, filepath.Join("testdata", name+"-"+file), got)
		}
	}
}

func compareGolden(t *testing.T, golden string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is made of the report; if that is meant, run the test with -update", golden)
	}
}

// printSummary returns what the command line prints.
func printSummary(t *testing.T, r *reports.Report, o SummaryOptions) string {
	t.Helper()
	var b strings.Builder
	if err := WriteSummary(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRenderIsDeterministic(t *testing.T) {
	once, again := renderPages(t, mixedReport()), renderPages(t, mixedReport())
	for name := range once {
		if !bytes.Equal(once[name], again[name]) {
			t.Errorf("%s differs from one time to the next", name)
		}
	}
}

// TestSize makes pages of large reports in which nothing or everything fails.
func TestSize(t *testing.T) {
	never := func(int, int) bool { return false }
	always := func(int, int) bool { return true }
	for name, r := range map[string]*reports.Report{
		"2,800 verdicts, all passed":          largeReport(25, 112, never),
		"2,800 verdicts, all failed":          largeReport(25, 112, always),
		"2,800 cases in 25 groups, passed":    largeReport(25, 2800, never),
		"2,800 cases in 25 groups, different": largeReport(25, 2800, func(cell, i int) bool { return cell > i%25 }),
		"2,800 cases in one group":            largeReport(1, 2800, func(_, i int) bool { return i%2 == 0 }),
		"900 cases in 3 groups":               largeReport(3, 900, never),
	} {
		pages := renderPages(t, r)
		if n := len(pages[reports.HTMLFile]); n > 1<<20 {
			t.Errorf("%s: %s has %d bytes, more than 1 MiB", name, reports.HTMLFile, n)
		}
		if n := len(pages[reports.SummaryFile]); n > 65_536 {
			t.Errorf("%s: %s has %d bytes, more than a comment on GitHub can have", name, reports.SummaryFile, n)
		}
		checkPage(t, pages[reports.HTMLFile])
	}
}

// checkPage checks that a page fetches nothing, runs no script but its own, that its IDs are unique, and that its links
// lead somewhere.
func checkPage(t *testing.T, page []byte) {
	t.Helper()
	ids := map[string]bool{}
	elements := checkElements(t, page)
	for _, n := range elements {
		id := attribute(n, "id")
		if ids[id] && id != "" {
			t.Errorf("the ID %s is there twice", id)
		}
		ids[id] = true
	}
	for _, n := range elements {
		if href, ok := strings.CutPrefix(attribute(n, "href"), "#"); ok && !ids[unescape(href)] {
			t.Errorf("#%s leads nowhere", href)
		}
	}
	if style := looks.FindString(string(page)); strings.Contains(style, "url(") || strings.Contains(style, "@import") {
		t.Error("the style fetches something")
	}
	if bytes.Contains(page, []byte("ZgotmplZ")) {
		t.Error("the template has removed a value that it takes for dangerous")
	}
}

// checkElements checks that a page fetches nothing and runs no script but its own, and returns its elements.
func checkElements(t *testing.T, page []byte) (elements []*html.Node) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "script" {
			scripts++
		}
		checkElement(t, n)
		elements = append(elements, n)
	}
	if scripts != 1 {
		t.Errorf("there are %d scripts", scripts)
	}
	return elements
}

func unescape(href string) string {
	return strings.NewReplacer("%2f", "/", "%3a", ":", "%3c", "<", "%3e", ">", "%22", `"`, "%27", "'").Replace(href)
}

func checkElement(t *testing.T, n *html.Node) {
	t.Helper()
	switch n.Data {
	case "link", "img", "iframe", "object", "embed", "base", "image", "use", "video", "audio":
		t.Errorf("there is a <%s>, which fetches something", n.Data)
	}
	for _, a := range n.Attr {
		value := strings.ToLower(strings.TrimSpace(a.Val))
		switch {
		case strings.HasPrefix(a.Key, "on"):
			t.Errorf("<%s> has the attribute %s", n.Data, a.Key)
		case a.Key == "src", a.Key == "srcset", a.Key == "action":
			t.Errorf("<%s> fetches %s", n.Data, a.Val)
		case a.Key == "href" && strings.HasPrefix(value, "javascript:"), a.Key == "style" && strings.Contains(value, "url("):
			t.Errorf("<%s> has %s=%q", n.Data, a.Key, a.Val)
		}
	}
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func TestPageIsSelfContained(t *testing.T) {
	for _, r := range []*reports.Report{mixedReport(), diceReport(), newReport("empty")} {
		checkPage(t, renderPages(t, r)[reports.HTMLFile])
	}
}

// TestPageIsReadableWithoutScript checks that nothing waits for the script but the form that needs it.
func TestPageIsReadableWithoutScript(t *testing.T) {
	page := string(renderPages(t, mixedReport())[reports.HTMLFile])
	if n := strings.Count(page[strings.Index(page, "</style>"):strings.LastIndex(page, "<script>")], " hidden"); n != 1 {
		t.Errorf("%d elements are hidden", n)
	}
	order := []string{
		"<h1>",
		"SHA-256 3f3f",
		`<h2>Failures`,
		`<h2>Known failing`,
		`<h2>Results by level`,
		`<h2>What was judged`,
		`<h2>All cases`,
		`<h2>Not judged`,
		`<h2>How to check`,
	}
	last := 0
	for _, what := range order {
		at := strings.Index(page, what)
		if at < last {
			t.Errorf("%s is missing, or above what has to come before it", what)
		}
		last = at
	}
}

// parseXML reads XML to its end.
func parseXML(data []byte) error {
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// hostileReport returns a report with a text in every field that can have one.
func hostileReport(text string) *reports.Report {
	r := mixedReport()
	r.Sections = []reports.Section{{
		ID: text, Title: text, Text: []string{text},
		Tables: []reports.Table{{Title: text, Columns: []string{text}, Rows: []reports.Row{{Cells: []string{text, text}, Verdict: verdicts.Verdict(text)}}}},
		Plots: []statistics.Plot{{Title: text, Chart: &statistics.Chart{
			Label: text, Height: 100, X: statistics.Axis{Label: text}, Y: statistics.Axis{Label: text},
			Curves: []statistics.Curve{{Name: text, Points: []statistics.Point{{X: 1, Y: 1}, {X: 2, Y: 2}}}, {Name: text, Points: []statistics.Point{{X: 1, Y: 2}, {X: 2, Y: 2}}}},
		}}},
	}}
	r.Figures = []reports.Figure{{Name: text, Unit: text}}
	r.Subject = reports.Subject{Name: text, Vendor: text, Version: text, Contact: text, Provider: text}
	r.Command, r.Product, r.SuiteVersion = []string{text}, text, text
	r.KnownFailing[0].Issue, r.KnownFailing[1].Detail = text, text
	r.KnownFailing[1].Issue = "https://example.com/" + text
	g := &r.Groups[0]
	g.Problem, g.Facts = text, []reports.Fact{{Name: text, Value: text}}
	g.Witness.Programs = []reports.Program{{Name: text, Origin: text, SHA256: text}}
	g.NotRun = append(g.NotRun, reports.Omission{Case: "left/" + text, Why: text})
	g.Cases = append(g.Cases, reports.Result{
		Case:        "bad/" + text,
		Verdict:     verdicts.Failed,
		Reason:      text,
		Blame:       verdicts.Blame(text),
		Details:     []string{text},
		NotJudged:   []string{text},
		Differences: []verdicts.Difference{{Field: text, Want: text + text, Got: text}},
		Evidence:    []string{text, "evidence/" + text, "//example.com/" + text},
		Tables:      []reports.Table{{Columns: []string{text}, Rows: []reports.Row{{Cells: []string{text}}}}},
	})
	r.Conclude()
	return r
}

func FuzzHostileText(f *testing.F) {
	for _, text := range []string{
		"", "plain", "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "' onclick='x", "javascript:alert(1)", "\x00\x01\x1b[31m\x7f",
		"]]>", "<!--", "-->", "</style></title></textarea>", "a\nb\r\nc", "| x | `y` **z** [l](javascript:x)", "\xff\xfe", "&amp;&#0;", "\u2028\ufffe",
		"https://example.com/\"x", "//example.com", "../../etc/passwd", "{{.}}", "evidence/a:b", "a b\tc", "%2f%00", "`unclosed",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := hostileReport(text)
		pages := renderPages(t, r)
		if err := parseXML(pages[reports.JUnitFile]); err != nil {
			t.Errorf("%s: %v", reports.JUnitFile, err)
		}
		for _, n := range checkElements(t, pages[reports.HTMLFile]) {
			if href := attribute(n, "href"); strings.HasPrefix(href, "//") || strings.HasPrefix(href, "..") {
				t.Errorf("a link leads to %s", href)
			}
		}
		if text := printSummary(t, r, SummaryOptions{}); strings.ContainsAny(text, "\x1b\x00\r\x7f") {
			t.Errorf("what is printed can control a terminal: %q", text)
		}
	})
}

func TestCredentialsAreRemoved(t *testing.T) {
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
	r := hostileReport("Bearer " + token)
	for name, page := range renderPages(t, r) {
		if bytes.Contains(page, []byte(token[:20])) {
			t.Errorf("%s has a token", name)
		}
	}
	if strings.Contains(printSummary(t, r, SummaryOptions{}), token[:20]) {
		t.Error("the summary that is printed has a token")
	}
}

func TestLine(t *testing.T) {
	r := mixedReport()
	r.Outcome.Result = verdicts.Passed
	if got, want := Line(r), "passed; 1 case for lack of nodes: not judged"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
