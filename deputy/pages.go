package deputy

import (
	"bytes"
	_ "embed"
	htmltemplate "html/template"
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

// Bad is how many errors a part is in JUnit.
func (p *Part) Bad() int {
	if p.Failed == 0 && p.Inconclusive != "" {
		return 1
	}
	return 0
}

// Failing is in how many parts something failed.
func (r *Report) Failing() (n int) {
	for _, p := range r.Parts {
		if p.Failed > 0 {
			n++
		}
	}
	return n
}

// Unsaid is how many parts say nothing.
func (r *Report) Unsaid() (n int) {
	for _, p := range r.Parts {
		n += p.Bad()
	}
	return n
}
