package reports

import (
	_ "embed" // the questions
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/findings"
)

// Source is a report that questions are asked. If it does not follow from its evidence nothing is taken from it.
type Source struct {
	Folder, Tool string
	Command      []string
	// Problem says why it does not count.
	Problem string
	// Run is the report of a run or an upgrade path, and Set its scenarios; nil of a storm.
	Run *ConformanceReport
	Set *scenarios.Set
	// Digest is that of the report's evidence, and Loads what a storm has measured, a line each.
	Digest string
	Loads  []string
}

// gaQuestion is a question of ga.yaml, with what reports answer.
type gaQuestion struct {
	Part, Question, Missing string
	Looks                   []*gaLook
	State                   string `json:"-"`
}

type gaLook struct {
	Say, Scenarios, Paths                 string
	Loads, Conformance, Findings, Reviews bool
	Figures                               []string `json:"-"`
}

//go:embed ga.yaml
var gaText []byte

// GA writes what reports say to the graduation criteria of KEP-5284 and to the questions of its production readiness
// review. A question is answered if each look at the reports finds something, in part if some does or something is
// missing that no report can show.
func GA(sources []Source) (string, error) {
	var questions []*gaQuestion
	known, err := findings.Load()
	if err == nil {
		err = yaml.UnmarshalStrict(gaText, &questions)
	}
	if err != nil {
		return "", err
	}
	states := map[string]int{}
	for _, q := range questions {
		found := 0
		for _, look := range q.Looks {
			for i, s := range sources {
				for _, figure := range look.at(s, known) {
					look.Figures = append(look.Figures, fmt.Sprintf("%s [%d]", figure, i+1))
				}
			}
			found += min(1, len(look.Figures))
		}
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
	text, err := renderText("ga", map[string]any{"Sources": sources, "Questions": questions, "States": states})
	return string(text), err
}

func (l *gaLook) at(s Source, known []findings.Finding) (figures []string) {
	switch {
	case s.Problem != "":
		return nil
	case l.Loads:
		return s.Loads
	case s.Run == nil:
		return nil
	case l.Paths != "" && s.Run.Path != nil:
		faulty := slices.ContainsFunc(s.Run.Path.Stages, func(stage PathStage) bool { return stage.Fault != "" })
		if l.Paths == "all" || faulty {
			return []string{fmt.Sprintf("%s: %s along %s", s.Run.Path.Name, s.Run.Outcome.Result, Plural(len(s.Run.Cells), "stage"))}
		}
	case l.Paths == "" && s.Run.Path == nil:
		var servers []string
		results := map[string][]verdicts.Result{} // of all authorizer chains of a server
		for _, c := range s.Run.Cells {
			server := fmt.Sprintf("%s %s, gate %s", c.Provider, c.Witness.GitVersion, c.Gate)
			if c.Emulated != "" {
				server += ", emulating " + c.Emulated
			}
			if results[server] == nil {
				servers = append(servers, server)
			}
			results[server] = append(results[server], c.Results...)
		}
		for _, server := range servers {
			if figure := l.figure(results[server], s.Set, known); figure != "" {
				figures = append(figures, server+": "+figure)
			}
		}
	}
	return figures
}

func (l *gaLook) figure(results []verdicts.Result, set *scenarios.Set, known []findings.Finding) string {
	var tried, passed, reviews []string
	pattern := regexp.MustCompile(l.Scenarios)
	for _, r := range results {
		s, _ := set.Get(r.Scenario)
		if !executed(r.Verdict) || !pattern.MatchString(r.Scenario) || l.Conformance && s.Conformance() != "" {
			continue
		}
		tried = append(tried, r.Scenario)
		if r.Verdict == verdicts.Passed {
			passed, reviews = append(passed, r.Scenario), append(reviews, reviewsOf(s))
		}
	}
	ok, of, what := passed, tried, "passed"
	if l.Findings {
		ok, of = shownBy(known, passed), shownBy(known, tried)
		what = strings.Join(append([]string{"that were tried still happen"}, ok...), "; ")
	}
	if l.Reviews {
		what += ". Access reviews per request, that of the impersonated user included: " + strings.Join(reviews, ", ")
	}
	if len(of) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d %s", len(ok), len(of), what)
}

// shownBy names the findings that one of these scenarios shows.
func shownBy(known []findings.Finding, ids []string) (found []string) {
	for _, f := range known {
		if slices.ContainsFunc(f.Scenarios, func(id string) bool { return slices.Contains(ids, id) }) {
			found = append(found, f.ID+" ("+f.Severity+")")
		}
	}
	return found
}

// reviewsOf counts the access reviews of each request of a scenario that passed: they are what was seen.
func reviewsOf(s *scenarios.Scenario) string {
	var counts []string
	for _, step := range s.Steps {
		if step.Expect != nil && step.Expect.Reviews != nil {
			counts = append(counts, fmt.Sprint(seq.Sum(step.Expect.Reviews, func(r scenarios.Review) int { return max(1, len(r.Unordered)) })))
		}
	}
	return path.Base(path.Dir(s.ID)) + "/" + path.Base(s.ID) + " " + strings.Join(counts, " then ")
}
