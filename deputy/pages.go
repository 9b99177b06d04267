package deputy

import (
	"bytes"
	_ "embed"
	htmltemplate "html/template"
	"slices"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/reports"
)

const (
	htmlFile, junitFile, summaryFile = "report.html", "junit.xml", "summary.md"
)

var (
	//go:embed report.html.tmpl
	htmlText string
	//go:embed report.txt.tmpl
	plainText string

	htmlPage   = htmltemplate.Must(htmltemplate.New("html").Parse(htmlText))
	plainPages = template.Must(template.New("plain").Funcs(reports.TextFuncs).Parse(plainText))
)

// Pages are report.html, junit.xml and summary.md.
func (r *Report) Pages() (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, render := range map[string]func(*bytes.Buffer) error{
		htmlFile:    func(b *bytes.Buffer) error { return htmlPage.Execute(b, r) },
		junitFile:   func(b *bytes.Buffer) error { return plainPages.ExecuteTemplate(b, "junit", r) },
		summaryFile: func(b *bytes.Buffer) error { return plainPages.ExecuteTemplate(b, "summary", r) },
	} {
		var b bytes.Buffer
		if err := render(&b); err != nil {
			return nil, err
		}
		out[name] = b.Bytes()
	}
	return out, nil
}

// said is a text of report.txt.tmpl.
func said(name string, data any) string {
	var b strings.Builder
	if err := plainPages.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // it is compiled in
	}
	return b.String()
}

// Bad says that a part is an error in JUnit.
func (p *Part) Bad() bool { return p.Failed == 0 && p.Inconclusive != "" }

// Failing is in how many parts something failed.
func (r *Report) Failing() int { return r.count(func(p *Part) bool { return p.Failed > 0 }) }

// Unsaid is how many parts say nothing.
func (r *Report) Unsaid() int { return r.count((*Part).Bad) }

func (r *Report) count(is func(*Part) bool) int {
	return len(slices.DeleteFunc(slices.Clone(r.Parts), func(p *Part) bool { return !is(p) }))
}
