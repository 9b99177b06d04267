package load

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/reports/load/run"
)

// md escapes what Markdown or HTML would take for markup: names come from files.
var md = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "&", "&amp;", "*", "\\*", "_", "\\_", "`", "\\`",
	"[", "\\[", "]", "\\]", "#", "\\#", "~", "\\~", "\n", " ", "\r", " ").Replace

var (
	//go:embed load.md.tmpl
	markdownSource string
	textTemplates  = template.Must(template.New("markdown").Funcs(functions).Funcs(template.FuncMap{
		"md": md, "counted": counted, "margin": marginText, "short": shortEffect, "join": func(words []string) string { return strings.ReplaceAll(strings.Join(words, " "), "`", "") },
	}).Parse(markdownSource))
)

func markdown(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := textTemplates.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// Markdown is summary.md: what fits into the comment of a CI system.
func Markdown(r *run.Run, result *Result) ([]byte, error) {
	return markdown("summary", page{Run: r, Result: result})
}

// ComparisonMarkdown is the result of Compare as Markdown.
func ComparisonMarkdown(result *Result) ([]byte, error) { return markdown("comparison", result) }

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
