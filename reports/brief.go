package reports

import (
	"bytes"
	"cmp"
	_ "embed" // the templates
	"encoding/xml"
	htmltemplate "html/template"
	"reflect"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/internal/seq"
)

var (
	//go:embed brief.tmpl
	briefText string

	//go:embed brief.html.tmpl
	briefPage string

	//go:embed report.css
	pageStyle string

	// TextFuncs are functions of templates that make text, here and in commands.
	TextFuncs = template.FuncMap{
		"join": strings.Join, "code": code, "xml": escapeXML,
		"oneLine": func(s string) string { return strings.Join(strings.Fields(s), " ") },
		"plural":  func(n any, noun string) string { return Plural(int(reflect.ValueOf(n).Int()), noun) },
		// first are the first n of a list, more how many further ones it has.
		"first": func(n int, list any) any {
			v := reflect.ValueOf(list)
			return v.Slice(0, min(n, v.Len())).Interface()
		},
		"more": func(n int, list any) int { return max(0, reflect.ValueOf(list).Len()-n) },
	}

	// textTemplates are the cases of each kind of report, and summary.md and junit.xml of a Brief.
	textTemplates = template.Must(template.New("text").Funcs(TextFuncs).Funcs(briefFuncs).Parse(briefText))

	pageTemplates = htmltemplate.Must(htmltemplate.New("page").Funcs(htmltemplate.FuncMap(briefFuncs)).Parse(briefPage))

	// briefFuncs are functions of all templates of a Brief.
	briefFuncs = template.FuncMap{
		"md":        strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[", "\n", " ").Replace,
		"firstLine": FirstLine, "orWord": cmp.Or[string], "verdict": VerdictMark, "outcomeOf": OutcomeOf,
		"add":   func(numbers ...int) int { return seq.Sum(numbers, func(n int) int { return n }) },
		"style": func() htmltemplate.CSS { return htmltemplate.CSS(pageStyle) },
	}
)

func renderText(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := textTemplates.ExecuteTemplate(&b, name, data)
	return []byte(Redact(b.String())), err // as in renderHTML
}

func code(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "`", "'")
	return "`" + s + "`"
}

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
