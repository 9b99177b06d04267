package reports

import (
	"bytes"
	"cmp"
	_ "embed" // the templates
	"encoding/xml"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

var (
	//go:embed markdown.tmpl
	markdownText string

	//go:embed brief.tmpl
	briefText string

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

	// textTemplates are summary.md and junit.xml, of a Brief too, and what "report prr" prints.
	textTemplates = template.Must(template.New("text").Funcs(TextFuncs).Funcs(pageFuncs).Parse(markdownText + junitText + briefText))

	// pageFuncs are functions of all templates that show a report.
	pageFuncs = template.FuncMap{
		"md":    strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[", "\n", " ").Replace,
		"short": ShortDigest, "ellipsis": Ellipsis, "someOf": someOf, "anchor": anchor, "requires": requiresText, "base": path.Base,
		"orWord": cmp.Or[string], "firstLine": FirstLine, "further": furtherReason, "implementation": implementationName,
		"describe": KnownFailing.Describe, "mark": markOf, "verdict": VerdictMark, "tiles": Counts.tiles, "notRun": notRunGroups, "bad": bad, "plain": plainNames,
		"took": took, "outcomeOf": OutcomeOf, "indent": indent, "said": said, "status": http.StatusText,
		"duration": func(d scenarios.Duration) string { return time.Duration(d).String() },
		"seconds":  func(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) },
		"words":    func(s string) string { return strings.ReplaceAll(s, "-", " ") },
		// class is a JUnit class; dots in it are packages to most readers.
		"class": func(cell, scenario string) string {
			return strings.ReplaceAll(cell, ".", "_") + "." + strings.ReplaceAll(path.Dir(scenario), "/", ".")
		},
		"add": func(numbers ...int) int { return seq.Sum(numbers, func(n int) int { return n }) },
	}
)

func renderText(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := textTemplates.ExecuteTemplate(&b, name, data)
	return []byte(Redact(b.String())), err // as in renderHTML
}

func implementationName(r *ConformanceReport) string {
	i := r.Implementation
	return strings.TrimSpace(i.Name+" "+i.Version) + " (" + i.Provider + ")"
}

// foldedFrom is from how many cells on a row of a table is a cell, not a level of one: a summary has to fit into
// a comment, and those of run --gate both are not folded.
const foldedFrom = 11

// CountRow is a row of a table of counts.
type CountRow struct {
	Level string // a level, or "all"
	Counts
}

// CountRows are the cell's counts as they are shown beside those of so many cells: by level, or of all levels together.
func (c *Cell) CountRows(cells int) (rows []CountRow) {
	for _, level := range Levels() {
		if n, ok := c.Summary[level]; ok {
			rows = append(rows, CountRow{string(level), n})
		}
	}
	if cells >= foldedFrom && len(rows) > 0 {
		return []CountRow{{"all", c.Counts()}}
	}
	return rows
}

// furtherReason is what a reason says beyond the first difference: why the blame is what it is.
func furtherReason(r verdicts.Result) string {
	if len(r.Differences) == 0 {
		return r.Reason
	}
	d := r.Differences[0]
	rest := strings.TrimPrefix(r.Reason, fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got))
	return strings.TrimPrefix(rest, "; ")
}

type notRunGroup struct {
	Why       string
	Cause     NotRunCause
	Scenarios []string
}

// notRunGroups groups the scenarios that were not run, unsupported ones too, by reason, in order of appearance.
func notRunGroups(c Cell) (groups []notRunGroup) {
	add := func(why string, cause NotRunCause, id string) {
		g := entry(&groups, func(g notRunGroup) bool { return g.Why == why }, notRunGroup{Why: why, Cause: cause})
		g.Scenarios = append(g.Scenarios, id)
	}
	for _, r := range c.Results {
		if !Executed(r.Verdict) {
			add(r.Reason, CauseTarget, r.Scenario)
		}
	}
	for _, n := range c.NotRun {
		add(n.Why, n.Cause, n.Scenario)
	}
	return groups
}

func code(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "`", "'")
	return "`" + s + "`"
}

func entry[T any](list *[]T, fits func(T) bool, fresh T) *T {
	i := slices.IndexFunc(*list, fits)
	if i < 0 {
		i, *list = len(*list), append(*list, fresh)
	}
	return &(*list)[i]
}

func someOf(names []string) string {
	const shown = 4
	if len(names) <= shown+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// junitText is the JUnit format as Jenkins and Prow read it: there is no standard, so only what the common schemas
// share is used. There is one testsuite per cell with one testcase per scenario. A further one, for the run, holds the
// overall outcome: a mismatched witness or an outdated known-failing entry is not the fault of any scenario, and must not
// come out green.
//
//go:embed junit.xml.tmpl
var junitText string

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// PRR writes what a KEP's author needs under "Were upgrade and rollback tested?" of the production readiness
// questionnaire: what was run, what came out, how to do it again, and the digest of the evidence. It says yes only if
// everything passed. An error: the report is not of an upgrade path, or does not follow from its evidence.
func PRR(v *Verification) (string, error) {
	r := v.Report
	if r.Path == nil {
		return "", fmt.Errorf("this is the report of a run, not of an upgrade path: make one with authzconf upgrade --report-dir DIR")
	}
	if !v.OK() {
		return "", fmt.Errorf("the report does not follow from its evidence: %s", v.Differences[0])
	}
	text, err := renderText("prr", struct {
		*page
		Digest string
	}{&page{Report: r, set: v.Set, at: index(v.Evidence)}, v.Digest})
	return string(text), err
}

type setupRow struct {
	Name    string
	Answers []string
}

// Setups are those that some stage of the upgrade path is for.
func (p *page) Setups() (rows []setupRow) {
	for _, setup := range p.set.Setups() {
		row := setupRow{Name: setup}
		row.Answers = append(row.Answers, seq.Map(p.Report.Cells, func(c Cell) string { return setupAnswer(p.set, p.at, &c, setup) })...)
		if slices.ContainsFunc(row.Answers, func(answer string) bool { return answer != notForStage }) {
			rows = append(rows, row)
		}
	}
	return rows
}

// notForStage stands where a setup has no scenario for a stage.
const notForStage = "–"

// setupAnswer is what was seen of a setup's last request on a stage.
func setupAnswer(set *scenarios.Set, at map[key]*verdicts.Evidence, c *Cell, setup string) string {
	i := slices.IndexFunc(c.Results, func(r verdicts.Result) bool {
		s, ok := set.Get(r.Scenario)
		return ok && s.Setup == setup
	})
	if i < 0 {
		return notForStage
	}
	result := c.Results[i]
	e := at[key{c.Name, result.Scenario}]
	if e == nil || len(e.Steps) == 0 {
		return string(result.Verdict)
	}
	o := &e.Steps[len(e.Steps)-1]
	text := fmt.Sprintf("refused (%d)", o.Response.Code)
	if event := verdicts.AuditOf(o); event != nil && event.ImpersonatedUser != nil {
		text = "allowed by " + cmp.Or(verdicts.ConstraintOf(event), "impersonate")
	}
	if result.Verdict != verdicts.Passed {
		text += " (" + string(result.Verdict) + ")"
	}
	return text
}
