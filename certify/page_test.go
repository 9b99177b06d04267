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
