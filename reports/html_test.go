package reports

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/net/html"

	"github.com/authzconf/authzconf/verdicts"
)

// unpacked is a page as it is when its script has unpacked everything.
func unpacked(t *testing.T, page []byte) []byte {
	t.Helper()
	return packed.ReplaceAllFunc(page, func(pack []byte) []byte {
		z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(packed.FindSubmatch(pack)[1])))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return plain
	})
}

// pageOf renders a run and parses the page, unpacked.
func pageOf(t *testing.T, r *ConformanceReport, evidence []*verdicts.Evidence, texts Texts) (string, *html.Node) {
	t.Helper()
	page, err := renderHTML(newPage(r, evidence, texts.Set))
	if err != nil {
		t.Fatal(err)
	}
	page = unpacked(t, page)
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return string(page), root
}

func each(n *html.Node, visit func(*html.Node)) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode {
			visit(d)
		}
	}
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// The page fetches nothing, its links lead somewhere, and its IDs are unique.
func TestPageIsSelfContained(t *testing.T) {
	texts := testTexts(t)
	r, evidence := mixedRun(t, texts)
	files, _, err := bundle(r, evidence, texts)
	if err != nil {
		t.Fatal(err)
	}
	page, root := pageOf(t, r, evidence, texts)
	each(root, func(n *html.Node) {
		if n.Data == "link" || n.Data == "img" || n.Data == "iframe" || attr(n, "src") != "" {
			t.Errorf("<%s> fetches something", n.Data)
		}
		href := attr(n, "href")
		if n.Data == "a" && !strings.HasPrefix(href, "#") && href != "https://example.com/issues/7" && files[path.Clean(href)] == nil {
			t.Errorf("%s is no file of the report", href)
		}
	})
	checkLinks(t, root)
	if strings.Contains(page, "url(") || strings.Contains(page, "@import") || strings.Contains(page, "ZgotmplZ") {
		t.Error("the page fetches something, or the template escaped something away")
	}
}

// checkLinks holds links within the page to lead somewhere, and its IDs to be
// unique.
func checkLinks(t *testing.T, root *html.Node) {
	t.Helper()
	ids := map[string]bool{}
	each(root, func(n *html.Node) {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("the ID %s is there twice", id)
			}
			ids[id] = true
		}
	})
	each(root, func(n *html.Node) {
		for _, href := range []string{attr(n, "href"), "#" + attr(n, "data-row")} {
			if fragment, ok := strings.CutPrefix(href, "#"); ok && fragment != "" {
				if id, err := url.PathUnescape(fragment); err != nil || !ids[id] {
					t.Errorf("%s leads nowhere", href)
				}
			}
		}
	})
}

// Everything that a reader has to find is there, and of failures without a script.
func TestPageShows(t *testing.T) {
	texts := testTexts(t)
	r, evidence := mixedRun(t, texts)
	page, root := pageOf(t, r, evidence, texts)
	for _, want := range []string{
		"kube-apiserver: failed", "digest " + ShortDigest(r.ScenariosDigest), "authzconf run --gate both", "known-failing entry kep-5284/no/such",
		"kubernetes_feature_enabled", "requested &amp;user.DefaultInfo{} without impersonating a user name",
		"blame: authorizer", "GET /api/v1/namespaces/default", "Impersonate-User", `"impersonatedUser": {`, "apiserver_impersonation_attempts_total",
		"Documented:", "The audit event records the constraint inside impersonatedUser.", "the target lacks metrics", "matches --skip",
		"Control run", "last line of its log", "https://example.com/issues/7", "authzconf verify DIR",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	// What failed, and why, is not packed.
	whole, err := renderHTML(newPage(r, evidence, texts.Set))
	if err != nil {
		t.Fatal(err)
	}
	plain := packed.ReplaceAllLiteralString(string(whole), "")
	for _, want := range []string{"blame: authorizer", "requested &amp;user.DefaultInfo{} without impersonating a user name", "Control run", "<noscript>", "Differences"} {
		if !strings.Contains(plain, want) {
			t.Errorf("without a script the page has no %q", want)
		}
	}
	marks := map[string]int{}
	each(root, func(n *html.Node) {
		if class := attr(n, "class"); strings.HasPrefix(class, "m ") {
			marks[strings.TrimPrefix(class, "m ")]++
		}
	})
	want := map[string]int{"pass": 2, "fail": 1, "known": 1, "invalid": 1, "unsupported": 1, "skipped": 1, "na": 7}
	for class, n := range want {
		if marks[class] != n {
			t.Errorf("%d marks %q in the matrix, want %d", marks[class], class, n)
		}
	}
}

// What a server answers cannot become part of the page's markup.
func TestPageEscapes(t *testing.T) {
	texts := testTexts(t)
	const attack = `</pre></script><script>alert(1)</script><img src=x onerror=alert(1)>`
	r, evidence := testRun(t, texts, bothGates(), func(e *verdicts.Evidence) {
		o := &e.Steps[0]
		o.Response.Body = attack
		o.Response.Warnings = []string{attack}
		o.Request.URL += attack
		o.Request.Headers["X"] = []string{attack}
		o.Request.Body = []byte(`"` + strings.ReplaceAll(attack, `"`, "'") + `"`)
		o.Reviews = append(o.Reviews, o.Reviews...)
		for i := range o.Reviews {
			o.Reviews[i].Spec.User = attack
		}
	})
	for i := range r.Cells {
		r.Cells[i].Problem = attack
		r.Cells[i].Witness.Mismatches = []string{attack}
	}
	r.Implementation.Name = attack
	r.Complete(texts.Set, evidence, []KnownFailing{{Scenario: attack, Reason: attack}})
	_, root := pageOf(t, r, evidence, texts)
	scripts := 0
	each(root, func(n *html.Node) {
		switch n.Data {
		case "script":
			scripts++
		case "img":
			t.Error("an image got into the page")
		}
	})
	if scripts != 1 {
		t.Errorf("%d scripts", scripts)
	}
	summary, err := renderText("summary", newPage(r, evidence, texts.Set))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(summary), "<script>") {
		t.Error("markup got into the summary")
	}
}
