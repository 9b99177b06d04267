package reports

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/verdicts"
)

// A stage that failed cannot be left out, nor one be made up.
func TestVerifyPathHasEveryStage(t *testing.T) {
	passed := func(r *ConformanceReport) { r.Outcome = Outcome{Result: verdicts.Passed, Notes: r.Outcome.Notes} }
	for _, c := range []struct {
		name   string
		change func(r *ConformanceReport)
		want   string
	}{
		{"a stage left out", func(r *ConformanceReport) {
			r.Path.Stages = r.Path.Stages[:2]
			passed(r)
		}, "the stages of the path are not the cells of the report"},
		{"a stage made up", func(r *ConformanceReport) {
			const why = "the stage was not reached, or broke off"
			r.Path.Stages = append(r.Path.Stages, PathStage{Cell: "4-moon", Claims: []Claim{{ClaimObjects, verdicts.Invalid, why}}})
			r.Outcome.Result, r.Outcome.ExitCode = verdicts.Invalid, ExitInvalid
			r.Outcome.Reasons = append([]string{"4-moon: " + ClaimObjects + ": " + why}, r.Outcome.Reasons...)
		}, "the stages of the path are not the cells of the report"},
		{"the path left out", func(r *ConformanceReport) {
			r.Path = nil
			passed(r)
		}, someStage + ": the report has no stage for this evidence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			writtenPath(t, dir, func(p *PathReport) { p.Evidence[2].Objects[1].Body = `{"kind":"Z","metadata":{"name":"y"}}` })
			rewrite(t, dir, c.change)
			v, err := Verify(dir, VerifyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("got:\n%s\nwant: %s", all, c.want)
			}
			if text, err := PRR(v); err == nil {
				t.Errorf("there is a text of it:\n%s", text)
			}
		})
	}
}
