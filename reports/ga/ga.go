// Package ga answers, from reports, the graduation criteria and production readiness questions of KEP-5284.
package ga

import (
	_ "embed" // the questions
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/findings"
)

// Source is a report that questions are asked. If it does not follow from its evidence nothing is taken from it.
type Source struct {
	Folder  string
	Tool    string
	Command []string
	// Problem says why the report does not count.
	Problem string
	// Report is the report of a run or an upgrade path, and Set has its scenarios. Both are nil for a storm.
	Report *reports.Report
	Set    *scenarios.Set
	// Digest is the digest of the report, which names its evidence. Loads are what a storm has measured, a line each.
	Digest string
	Loads  []string
}

// question is a question of ga.yaml, with what reports answer to it.
type question struct {
	Part, Question, Missing string
	Looks                   []*look
	State                   string `json:"-"`
}

type look struct {
	Say, Scenarios, Paths, Surface       string
	Loads, AnyCluster, Findings, Reviews bool
	Figures                              []string `json:"-"`
}

//go:embed ga.yaml
var questionsText []byte

// Answer writes what reports say to the graduation criteria of KEP-5284 and to the questions of its production
// readiness review. A question is answered if each look at the reports finds something, in part if some does or
// something is missing that no report can show.
//
// A report of an upgrade path that is about another gate answers what is asked of that one, and nothing about KEP-5284.
// If there are only such reports, the questions of KEP-5284 are left out.
func Answer(sources []Source) (string, error) {
	var questions []*question
	allFindings, err := findings.Load()
	areAllOthers := !slices.ContainsFunc(sources, func(s Source) bool { return s.OtherGate() == "" })
	if err == nil && !areAllOthers {
		err = yaml.UnmarshalStrict(questionsText, &questions)
	}
	if err != nil {
		return "", err
	}
	states := map[string]int{}
	for _, q := range questions {
		found := q.look(sources, allFindings)
		switch {
		case found == 0:
			q.State = "not answered"
		case found < len(q.Looks) || q.Missing != "":
			q.State = "answered in part"
		default:
			q.State = "answered"
		}
		states[q.State]++
	}
	var text strings.Builder
	err = page.Execute(&text, map[string]any{
		"Sources": sources, "Questions": questions, "States": states, "Paths": listPaths(sources), "Gates": listGates(sources),
	})
	return record.Redact(text.String()), err
}

// look collects what reports answer to the question, and returns how many looks at them have found something.
func (q *question) look(sources []Source, allFindings []findings.Finding) (found int) {
	for _, look := range q.Looks {
		for i, s := range sources {
			for _, figure := range look.collectFigures(s, allFindings) {
				look.Figures = append(look.Figures, fmt.Sprintf("%s [%d]", figure, i+1))
			}
		}
		found += min(1, len(look.Figures))
	}
	return found
}

func (l *look) collectFigures(s Source, allFindings []findings.Finding) (figures []string) {
	switch {
	case s.Problem != "", s.OtherGate() != "":
		return nil
	case l.Loads:
		return s.Loads
	case s.Report == nil:
		return nil
	case l.Surface != "" || s.Report.Product == surfaceProduct:
		return l.atSurface(s)
	case s.isPath():
		return l.atPath(s)
	case l.Paths != "":
		return nil
	}
	return l.atServers(s, allFindings)
}

// surfaceProduct is the name of the product that compares an API server with the gate on and off.
const surfaceProduct = "surface"

// atSurface returns the results of the comparisons that the look asks for, a line for each state of the gate.
func (l *look) atSurface(s Source) (figures []string) {
	isAsked := l.Surface != "" && s.Report.Product == surfaceProduct
	if !isAsked {
		return nil
	}
	pattern := regexp.MustCompile(l.Surface)
	for _, g := range s.Report.Groups {
		for _, r := range g.Cases {
			if !pattern.MatchString(r.Case) || !reports.Executed(r.Verdict) {
				continue
			}
			figures = append(figures, fmt.Sprintf("%s, %s: %s. %s", describeServer(g), r.Case, r.Verdict, strings.Join(r.Details, "; ")))
		}
	}
	return figures
}

// isPath reports whether the report is of an upgrade path.
func (s Source) isPath() bool { return s.Report != nil && s.Report.Product == pathProduct }

// pathProduct is the name of the product for upgrade paths, pathSection is the section that shows the path, and
// faultFact is the fact of a stage before which something was broken on purpose.
const (
	pathProduct = "upgrade"
	pathSection = "path"
	faultFact   = "on the way here"
)

func (l *look) atPath(s Source) []string {
	faulty := slices.ContainsFunc(s.Report.Groups, func(g reports.Group) bool {
		return slices.ContainsFunc(g.Facts, func(f reports.Fact) bool { return f.Name == faultFact })
	})
	hasWantedFault := l.Paths == "fault" && faulty
	if l.Paths != "all" && !hasWantedFault {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s along %s", s.path().Title, s.Report.Outcome.Result, reports.Plural(len(s.Report.Groups), "stage"))}
}

// path returns the section that shows the upgrade path.
func (s Source) path() reports.Section {
	i := slices.IndexFunc(s.Report.Sections, func(section reports.Section) bool { return section.ID == pathSection })
	if i < 0 {
		return reports.Section{Title: "an upgrade path"}
	}
	return s.Report.Sections[i]
}

func (l *look) atServers(s Source, allFindings []findings.Finding) (figures []string) {
	var servers []string
	results := map[string][]reports.Result{} // of all authorizer chains of a server
	for _, g := range s.Report.Groups {
		server := describeServer(g)
		if results[server] == nil {
			servers = append(servers, server)
		}
		results[server] = append(results[server], g.Cases...)
	}
	for _, server := range servers {
		if figure := l.figure(results[server], s.Set, allFindings); figure != "" {
			figures = append(figures, server+": "+figure)
		}
	}
	return figures
}

func describeServer(g reports.Group) string {
	version := ""
	if g.Witness != nil {
		version = g.Witness.GitVersion
	}
	text := fmt.Sprintf("%s %s, gate %s", g.Cell.Provider, version, g.Cell.Gate)
	if g.Cell.Emulated != "" {
		text += ", emulating " + g.Cell.Emulated
	}
	return text
}

func (l *look) figure(results []reports.Result, set *scenarios.Set, allFindings []findings.Finding) string {
	var tried, passed, reviews []string
	pattern := regexp.MustCompile(l.Scenarios)
	for _, r := range results {
		s, isScenario := set.Get(r.Case)
		if !isScenario || !l.isAbout(s, pattern) || !reports.Executed(r.Verdict) {
			continue
		}
		tried = append(tried, r.Case)
		if r.Verdict == verdicts.Passed {
			passed, reviews = append(passed, r.Case), append(reviews, countReviews(s))
		}
	}
	shown, all, what := passed, tried, "passed"
	if l.Findings {
		shown, all = shownBy(allFindings, passed), shownBy(allFindings, tried)
		what = strings.Join(append([]string{"that were tried still happen"}, shown...), "; ")
	}
	if l.Reviews {
		what += ". Access reviews per request, that of the impersonated user included: " + strings.Join(reviews, ", ")
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d %s", len(shown), len(all), what)
}

// isAbout reports whether the look is for a scenario.
func (l *look) isAbout(s *scenarios.Scenario, pattern *regexp.Regexp) bool {
	if l.AnyCluster && s.OnAnyCluster() != "" {
		return false
	}
	return pattern.MatchString(s.ID)
}

// shownBy names the findings that one of these scenarios shows.
func shownBy(allFindings []findings.Finding, ids []string) (found []string) {
	for _, f := range allFindings {
		if slices.ContainsFunc(f.Scenarios, func(id string) bool { return slices.Contains(ids, id) }) {
			found = append(found, f.ID+" ("+f.Severity+")")
		}
	}
	return found
}

// countReviews counts the access reviews of each request of a scenario that passed. As it passed, its expected reviews
// are those that were seen.
func countReviews(s *scenarios.Scenario) string {
	var counts []string
	for _, step := range s.Steps {
		if step.Expect != nil && step.Expect.Reviews != nil {
			counts = append(counts,
				fmt.Sprint(seq.Sum(step.Expect.Reviews, func(r scenarios.Review) int { return max(1, len(r.Unordered)) })),
			)
		}
	}
	return path.Base(path.Dir(s.ID)) + "/" + path.Base(s.ID) + " " + strings.Join(counts, " then ")
}

// listPaths returns the upgrade paths that count.
func listPaths(sources []Source) []Source {
	return slices.DeleteFunc(slices.Clone(sources), func(s Source) bool { return !s.isPath() || s.Problem != "" })
}

// Section returns the section that shows the upgrade path.
func (s Source) Section() reports.Section { return s.path() }

//go:embed ga.md.tmpl
var pageText string

var page = template.Must(template.New("ga").Funcs(template.FuncMap{
	"join": strings.Join, "add": func(a, b int) int { return a + b },
	"short": func(digest string) string { return digest[:min(12, len(digest))] },
	"md":    strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[", "\n", " ").Replace,
}).Parse(pageText))
