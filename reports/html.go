package reports

import (
	"bytes"
	_ "embed"
	"html/template"
	"strings"
)

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

// renderHTML is report.html.
func renderHTML(p *page) ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplates.Execute(&b, p)
	return b.Bytes(), err
}
