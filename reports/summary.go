package reports

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/xml"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/authzconf/authzconf/verdicts"
)

var (
	//go:embed markdown.tmpl
	markdownText string

	// TextFuncs are functions of templates that make text, here and in commands.
	TextFuncs = template.FuncMap{
		"join": strings.Join, "code": code, "xml": escapeXML,
		"plural": func(n any, noun string) string { return Plural(int(reflect.ValueOf(n).Int()), noun) },
		// first are the first n of a list, more how many further ones it has.
		"first": func(n int, list any) any {
			v := reflect.ValueOf(list)
			return v.Slice(0, min(n, v.Len())).Interface()
		},
		"more": func(n int, list any) int { return max(0, reflect.ValueOf(list).Len()-n) },
	}

	// textTemplates are summary.md, junit.xml and what "report prr" prints.
	textTemplates = template.Must(template.New("text").Funcs(TextFuncs).Funcs(template.FuncMap{
		"md": markdown, "short": short, "ellipsis": ellipsis, "someOf": someOf,
		"orWord": cmp.Or[string], "firstLine": firstLine, "further": furtherReason, "implementation": implementationName,
		"describe": KnownFailing.describe, "seconds": seconds,
		"add":     func(a, b int) int { return a + b },
		"words":   func(s string) string { return strings.ReplaceAll(s, "-", " ") },
		"oneLine": func(s string) string { return strings.Join(strings.Fields(s), " ") },
	}).Parse(markdownText + junitText))
)

// renderText renders one of textTemplates.
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
// a comment.
const foldedFrom = 9

// CountRow is a row of a table of counts.
type CountRow struct {
	// Level is a level, or "all".
	Level string
	Counts
}

// CountRows are the cell's counts as they are shown beside those of so many cells: by level, or of all levels
// together.
func (c *Cell) CountRows(cells int) []CountRow {
	var rows []CountRow
	all := CountRow{Level: "all"}
	for _, level := range Levels() {
		n, ok := c.Summary[level]
		if ok {
			rows = append(rows, CountRow{string(level), n})
			all.Counts = all.add(n)
		}
	}
	if cells >= foldedFrom && len(rows) > 0 {
		return []CountRow{all}
	}
	return rows
}

// failing is a result that failed or is invalid, and is not known to fail, with the name of its cell.
type failing struct {
	verdicts.Result
	On string
}

// Failing are the results that summary.md lists.
func (p *page) Failing() (all []failing) {
	for _, c := range p.Report.Cells {
		for _, r := range c.Results {
			if r.KnownFailing == "" && (r.Verdict == verdicts.Failed || r.Verdict == verdicts.Invalid) {
				all = append(all, failing{r, c.Name})
			}
		}
	}
	return all
}

// notRunOn is a group of scenarios that were not run on a cell.
type notRunOn struct {
	notRunGroup
	On string
}

// NotRun is what was not run, and why; of many cells only where somebody may miss it.
func (p *page) NotRun() (all []notRunOn) {
	for _, c := range p.Cells {
		for _, g := range c.NotRun {
			if g.Cause != CauseTarget || len(p.Cells) < foldedFrom {
				all = append(all, notRunOn{g, c.Name})
			}
		}
	}
	return all
}

// furtherReason is what a reason says beyond the first difference, with which that of a failure begins: why the
// blame is what it is.
func furtherReason(r verdicts.Result) string {
	if len(r.Differences) == 0 {
		return r.Reason
	}
	d := r.Differences[0]
	rest := strings.TrimPrefix(r.Reason, fmt.Sprintf("step %d: %s: want %s, got %s", d.Step, d.Field, d.Want, d.Got))
	return strings.TrimPrefix(rest, "; ")
}

// notRunGroup is the scenarios of a cell that were not run for one reason.
type notRunGroup struct {
	Why       string
	Cause     NotRunCause
	Scenarios []string
}

// notRunGroups groups the scenarios that were not run, unsupported ones included, by their reason, in order of
// appearance.
func notRunGroups(c *Cell) []notRunGroup {
	var groups []notRunGroup
	add := func(why string, cause NotRunCause, id string) {
		g := entry(&groups, func(g *notRunGroup) bool { return g.Why == why }, notRunGroup{Why: why, Cause: cause})
		g.Scenarios = append(g.Scenarios, id)
	}
	for _, r := range c.Results {
		if !executed(r.Verdict) {
			add(r.Reason, CauseTarget, r.Scenario)
		}
	}
	for _, n := range c.NotRun {
		add(n.Why, n.Cause, n.Scenario)
	}
	return groups
}

// markdown escapes what would change the meaning of a text within a table or a list.
func markdown(s string) string {
	return strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[", "\n", " ").Replace(s)
}

// code is a text in backquotes.
func code(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "`", "'")
	return "`" + s + "`"
}

func short(digest string) string { return digest[:min(12, len(digest))] }

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// ellipsis cuts a text off after length characters.
func ellipsis(s string, length int) string {
	if text := []rune(s); len(text) > length {
		return string(text[:length]) + "…"
	}
	return s
}

// Plural is "1 scenario" or "2 scenarios".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// entry is the one of a list that fits, or else a new one at its end.
func entry[T any](list *[]T, fits func(*T) bool, fresh T) *T {
	for i := range *list {
		if fits(&(*list)[i]) {
			return &(*list)[i]
		}
	}
	*list = append(*list, fresh)
	return &(*list)[len(*list)-1]
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// someOf lists names, of many only the first.
func someOf(names []string) string {
	const shown = 4
	if len(names) <= shown+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// junitText is the JUnit format as Jenkins and Prow read it: there is no standard, so only what the common schemas
// share is used.
//
//go:embed junit.xml.tmpl
var junitText string

// junitRun is what junit.xml shows, a suite per cell with a case per scenario.
type junitRun struct {
	Took    time.Duration
	Started string // in the form that the schemas ask for, which has no zone
	Suites  []junitSuite
}

type junitSuite struct {
	Name       string
	Took       time.Duration
	Properties []fact
	Cases      []junitCase
}

// junitCase is a case; Kind is failure, error, skipped, or empty if it passed.
type junitCase struct {
	Name, Class               string
	Took                      time.Duration
	Kind, Type, Message, Text string
}

// Count is how many cases are of a kind; of "" all.
func (s junitSuite) Count(kind string) (n int) {
	for _, c := range s.Cases {
		if kind == "" || c.Kind == kind {
			n++
		}
	}
	return n
}

// Count is that of all suites.
func (r junitRun) Count(kind string) (n int) {
	for _, s := range r.Suites {
		n += s.Count(kind)
	}
	return n
}

// renderJUnit makes one testsuite per cell with one testcase per scenario. A further one, for the run, holds the
// overall outcome: a mismatched witness or an outdated known-failing entry is not the fault of any scenario, and must not
// come out green.
func renderJUnit(r *ConformanceReport, evidence []*verdicts.Evidence) ([]byte, error) {
	at := index(evidence)
	all := junitRun{Took: r.Finished.Sub(r.Started), Started: r.Started.UTC().Format("2006-01-02T15:04:05")}
	all.Suites = append(all.Suites, runSuite(r, all.Took))
	for i := range r.Cells {
		all.Suites = append(all.Suites, cellSuite(&r.Cells[i], at))
	}
	return renderText("junit", all)
}

// runSuite is the run as a whole.
func runSuite(r *ConformanceReport, took time.Duration) junitSuite {
	c := junitCase{Name: "outcome", Class: "authzconf.run"}
	if r.Outcome.Result != verdicts.Passed {
		c.Kind, c.Type, c.Text = "error", string(verdicts.Invalid), strings.Join(r.Outcome.Reasons, "\n")
		c.Message = firstLine(c.Text)
	}
	if r.Outcome.Result == verdicts.Failed {
		c.Kind, c.Type = "failure", string(verdicts.Failed)
	}
	return junitSuite{Name: "run", Took: took, Cases: []junitCase{c}, Properties: []fact{
		{"implementation", strings.TrimSpace(r.Implementation.Name + " " + r.Implementation.Version)},
		{"suiteVersion", r.SuiteVersion}, {"scenariosDigest", r.ScenariosDigest}, {"seed", fmt.Sprint(r.Seed)},
	}}
}

func cellSuite(cell *Cell, at map[key]*verdicts.Evidence) junitSuite {
	s := junitSuite{
		Name: cell.Name, Took: time.Duration(cell.WallSeconds * float64(time.Second)), Properties: []fact{
			{"provider", cell.Provider}, {"kubernetes", cell.Kubernetes}, {"emulated", cell.Emulated}, {"gate", cell.Gate},
			{"gitVersion", cell.Witness.GitVersion},
		},
	}
	for _, p := range cell.Witness.Programs {
		s.Properties = append(s.Properties, fact{p.Title(), p.Origin + "; SHA-256 " + p.SHA256})
	}
	add := func(scenario string, c junitCase) {
		// Dots in a class name are packages to most readers.
		c.Name, c.Class = scenario, strings.ReplaceAll(cell.Name, ".", "_")+"."+strings.ReplaceAll(path.Dir(scenario), "/", ".")
		s.Cases = append(s.Cases, c)
	}
	for _, result := range cell.Results {
		c := resultCase(result)
		if e := at[key{cell.Name, result.Scenario}]; e != nil {
			c.Took = e.Ended.Sub(e.Started)
		}
		add(result.Scenario, c)
	}
	for _, n := range cell.NotRun {
		add(n.Scenario, junitCase{Kind: "skipped", Message: n.Why})
	}
	return s
}

func resultCase(r verdicts.Result) junitCase {
	switch {
	case r.KnownFailing != "":
		return junitCase{Kind: "skipped", Message: "known failing: " + r.KnownFailing}
	case r.Verdict == verdicts.Passed:
		return junitCase{}
	case r.Verdict == verdicts.Failed:
		return junitCase{Kind: "failure", Type: string(r.Blame), Message: firstLine(r.Reason), Text: differenceText(r)}
	case r.Verdict == verdicts.NotSupported, r.Verdict == verdicts.Skipped:
		return junitCase{Kind: "skipped", Message: firstLine(r.Reason)}
	}
	return junitCase{Kind: "error", Type: string(r.Blame), Message: firstLine(r.Reason), Text: r.Reason}
}

// differenceText lists all differences of a failure, and whose fault it is.
func differenceText(r verdicts.Result) string {
	var b strings.Builder
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "step %d: %s\n  want: %s\n  got:  %s\n", d.Step, d.Field, d.Want, d.Got)
	}
	fmt.Fprintf(&b, "blame: %s\nreason: %s\n", r.Blame, r.Reason)
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) }

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
