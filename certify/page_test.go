package certify

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"
)

func TestBadge(t *testing.T) {
	raw := badge("core", `Example <script>"&' Ä`)
	var svg struct {
		Width int      `xml:"width,attr"`
		Title string   `xml:"title"`
		Text  []string `xml:"g>text"`
	}
	if err := xml.Unmarshal(raw, &svg); err != nil {
		t.Fatalf("%v:\n%s", err, raw)
	}
	if svg.Title != `Example <script>"&' Ä` || strings.Join(svg.Text, " ") != label+" core" || svg.Width < 100 {
		t.Errorf("%+v", svg)
	}
	if strings.Contains(strings.ReplaceAll(string(raw), "http://www.w3.org/2000/svg", ""), "http") {
		t.Error("something is fetched")
	}
}

// TestNamesAreText has a vendor whose name is Markdown and HTML, and a finding with HTML in it.
func TestNamesAreText(t *testing.T) {
	c := &Certification{Product: Product{Vendor: "[x](javascript:alert) <b> `c` | *y*", Name: "P", Version: "1"}, Findings: []Finding{
		{Reason: "ignores-name", Level: Core, Count: 2, Examples: []string{"<script>alert(1)</script>"}},
	}, Results: []LevelResult{{Level: Core, Reviews: 1, Planned: 1, Findings: 1}}}
	raw, err := c.Summary()
	if err != nil {
		t.Fatal(err)
	}
	summary, _, _ := strings.Cut(string(raw), "\n")
	if want := "# Certification of \\[x\\](javascript:alert) &lt;b&gt; \\`c\\` \\| \\*y\\* P 1"; summary != want {
		t.Errorf("%s\n%s", summary, want)
	}
	raw, err = c.HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<b>", "<script>", "http"} {
		if strings.Contains(string(raw), bad) {
			t.Errorf("%s is in the page", bad)
		}
	}
	for _, want := range []string{"&lt;script&gt;alert(1)", "seen 2 times", "Right: another value is another thing.", `class="not-granted">no`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s is not in the page:\n%s", want, raw)
		}
	}
}

func TestPageEscapesAndSorts(t *testing.T) {
	of := func(p Product) *Certification { return &Certification{Product: p, Started: time.Unix(0, 0)} }
	page := Page{Levels: []string{"core"}, Rows: []Row{
		{Certification: of(Product{Vendor: "Zeta"}), Path: "z"},
		{Certification: of(Product{Vendor: "alpha", Contact: "https://example.com/?a=\"b"}), Levels: map[string]State{"core": Granted}, Path: "a b/c:d"},
		{Certification: of(Product{Vendor: "<b>Beta"}), Problems: []string{"<i>wrong"}, Levels: map[string]State{"core": Granted}, Path: "javascript:x"},
	}}
	raw, err := page.HTML()
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, bad := range []string{"<b>Beta", "<i>wrong", `href="javascript`} {
		if strings.Contains(text, bad) {
			t.Errorf("%s is in the page", bad)
		}
	}
	for _, want := range []string{"&lt;b&gt;Beta", `href="./a%20b/c:d"`, "1970-01-01", "2 of 3 bundles hold"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in the page", want)
		}
	}
	if n := strings.Count(text, `class="granted"`); n != 1 {
		t.Errorf("%d levels are shown as granted", n)
	}
	// "<" comes before letters.
	if b, a, z := strings.Index(text, "Beta"), strings.Index(text, "alpha"), strings.Index(text, "Zeta"); b > a || a > z {
		t.Error("the rows are not sorted")
	}
}
