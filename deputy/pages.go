package deputy

import (
	_ "embed"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/reports"
)

var (
	//go:embed report.txt.tmpl
	plainText string

	plainPages = template.Must(template.New("plain").Funcs(reports.TextFuncs).Parse(plainText))
)

// said is a text of report.txt.tmpl.
func said(name string, data any) string {
	var b strings.Builder
	if err := plainPages.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // it is compiled in
	}
	return b.String()
}
