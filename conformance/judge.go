package conformance

import (
	"fmt"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// JudgeScenario returns the verdict on a scenario on a cell, from what was recorded.
func JudgeScenario(s *scenarios.Scenario, cell verdicts.Cell, view record.View) reports.Result {
	r := reports.Result{Case: s.ID, Level: s.Level}
	key := evidenceKey(cell.Name, s.ID)
	e, err := record.Read[verdicts.Evidence](view, key)
	if err != nil {
		return invalidResult(r, verdicts.BlameHarness, err.Error())
	}
	if e.Scenario != s.ID || e.Cell != cell {
		return invalidResult(r, verdicts.BlameHarness, fmt.Sprintf("the evidence is of %s on %s", e.Scenario, e.Cell.Name))
	}
	v := verdicts.Judge(s, e)
	r = reports.NewResult(v)
	r.Seconds = e.Duration().Seconds()
	r.Evidence = []string{view.EvidenceFile(key)}
	if r.Bad() && len(e.Problems) == 0 {
		r.Details = explainDetails(s, e)
		r.Tables = compareReviews(s, e, v)
	}
	return r
}

// explainDetails returns what was observed, a line for each request, and what the control run saw.
func explainDetails(s *scenarios.Scenario, e *verdicts.Evidence) (lines []string) {
	for _, line := range describeSteps(e, stepNamer(s)) {
		lines = append(lines, "observed: "+line)
	}
	if e.Control != nil {
		for _, line := range describeSteps(e.Control, stepNamer(s)) {
			lines = append(lines, "in the control run: "+line)
		}
	}
	return lines
}

// stepNamer returns a function that returns the names of the steps of a scenario.
func stepNamer(s *scenarios.Scenario) func(step int) string {
	return func(step int) string {
		if step >= len(s.Steps) {
			return ""
		}
		return s.Steps[step].Name
	}
}
