package main

import (
	_ "embed" // the text
	"regexp"
	"strings"
	"text/template"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
)

//go:embed issue.md.tmpl
var issueText string

var issuePage = template.Must(template.New("issue").Funcs(template.FuncMap{
	"plural": reports.Plural,
	"focus":  focusOn,
	"line":   printable,
	"md":     strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[", "\n", " ").Replace,
	"isSame": func(line string) bool { return strings.HasPrefix(line, "  ") },
}).Parse(issueText))

// describeIssue returns, in Markdown, the text of an issue about what two cells do differently.
func describeIssue(d *conformance.BehaviourDiff) (string, error) {
	var text strings.Builder
	err := issuePage.Execute(&text, d)
	return record.Redact(text.String()), err
}

// focusOn returns the expression of --focus for some scenarios, quoted for a shell.
func focusOn(changed []conformance.ScenarioDiff) string {
	names := seq.Map(changed, func(s conformance.ScenarioDiff) string { return regexp.QuoteMeta(s.Scenario) })
	return "'^(" + strings.Join(names, "|") + ")$'"
}
