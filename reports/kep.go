package reports

import (
	"cmp"
	_ "embed" // the questions
	"fmt"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
	"github.com/authzconf/authzconf/verdicts/findings"
)

// PRR writes what a KEP's author needs under "Were upgrade and rollback tested?" of the production readiness
// questionnaire: what was run, what came out, how to do it again, and the digest of the evidence. It says yes
// only if everything passed. An error means that the report is not one of an upgrade path, or does not follow
// from its evidence.
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

// setupRow is a setup with what became of its request on each stage.
type setupRow struct {
	Name    string
	Answers []string
}

// Setups are those that some stage of the upgrade path is for.
func (p *page) Setups() (rows []setupRow) {
	for _, setup := range p.set.Setups() {
		row := setupRow{Name: setup}
		for _, c := range p.Report.Cells {
			row.Answers = append(row.Answers, setupAnswer(p.set, p.at, &c, setup))
		}
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
	Say, Scenarios, Paths        string
	Loads, Conformance, Findings bool
	Figures                      []string `json:"-"`
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

// at is what a report shows.
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
		for _, c := range s.Run.Cells {
			if figure := l.figure(&c, s.Set, known); figure != "" {
				figures = append(figures, fmt.Sprintf("%s %s, gate %s: %s", c.Provider, c.Witness.GitVersion, c.Facts.Gate, figure))
			}
		}
	}
	return figures
}

// figure is what a cell shows, "" for nothing.
func (l *gaLook) figure(c *Cell, set *scenarios.Set, known []findings.Finding) string {
	passed := map[string]bool{} // of those that were run
	for _, r := range c.Results {
		if executed(r.Verdict) {
			passed[r.Scenario] = r.Verdict == verdicts.Passed
		}
	}
	var counted [][]string // each by the scenarios of which one has to pass
	what, pattern := "passed", regexp.MustCompile(l.Scenarios)
	for id := range passed {
		if s, _ := set.Get(id); !l.Findings && pattern.MatchString(id) && (!l.Conformance || s.Conformance() == "") {
			counted = append(counted, []string{id})
		}
	}
	if l.Findings {
		what = "that were tried still happen"
		for _, f := range known {
			if slices.ContainsFunc(f.Scenarios, func(id string) bool { _, tried := passed[id]; return tried }) {
				counted = append(counted, f.Scenarios)
			}
		}
	}
	if len(counted) == 0 {
		return ""
	}
	ok := 0
	for _, ids := range counted {
		if slices.ContainsFunc(ids, func(id string) bool { return passed[id] }) {
			ok++
		}
	}
	return fmt.Sprintf("%d of %d %s", ok, len(counted), what)
}
