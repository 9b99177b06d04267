package reports

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
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
		Report *ConformanceReport
		Path   *pathView
		Digest string
	}{r, newPathView(r, v.Evidence, v.Set), v.Digest})
	return string(text), err
}

// pathView is an upgrade path as it is shown.
type pathView struct {
	*PathReport
	Rows   []stageRow
	Setups []setupRow
}

// stageRow is a row of the table of stages.
type stageRow struct {
	PathStage
	Number, Passed, Results int
	Server, Emulated, Gate  string
}

// setupRow is a setup with what became of its request on each stage.
type setupRow struct {
	Name    string
	Answers []string
}

func newPathView(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) *pathView {
	v := &pathView{PathReport: r.Path, Setups: setupRows(r, evidence, set)}
	for i, stage := range r.Path.Stages {
		c := r.Cells[i]
		row := stageRow{
			PathStage: stage, Number: i + 1, Results: len(c.Results),
			Server: cmp.Or(c.Witness.GitVersion, "not reached"), Emulated: c.Emulated, Gate: string(c.Facts.Gate),
		}
		for _, result := range c.Results {
			if result.Verdict == verdicts.Passed {
				row.Passed++
			}
		}
		switch {
		case c.Witness.GateMetric == "absent":
			row.Gate = "not there"
		case c.Gate == "default":
			row.Gate += " (default)"
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// setupRows leaves out setups that no stage is for.
func setupRows(r *ConformanceReport, evidence []*verdicts.Evidence, set *scenarios.Set) []setupRow {
	at := index(evidence)
	var rows []setupRow
	for _, setup := range set.Setups() {
		row := setupRow{Name: setup}
		for _, c := range r.Cells {
			row.Answers = append(row.Answers, setupAnswer(set, at, &c, setup))
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
