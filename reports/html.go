package reports

import (
	"bytes"
	_ "embed"
	"html/template"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// The page is one file without anything to fetch: style and script are put into
// it.
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
		"plural": plural,
		"dense":  func(p *page) string { return map[bool]string{true: "dense", false: "wide"}[p.Dense] },
	}).Parse(pageTemplate))
)

// renderHTML is report.html.
func renderHTML(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplates.Execute(&b, newPage(r, evidence, set))
	return b.Bytes(), err
}
