package reports

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/verdicts"
)

// A leg that failed cannot be left out, nor one be made up.
func TestVerifyPathHasEveryLeg(t *testing.T) {
	passed := func(r *ConformanceReport) { r.Outcome = Outcome{Result: RunPassed, Notes: r.Outcome.Notes} }
	for _, c := range []struct {
		name   string
		change func(r *ConformanceReport)
		want   string
	}{
		{"a leg left out", func(r *ConformanceReport) {
			r.Path.Legs = r.Path.Legs[:2]
			passed(r)
		}, "the legs of the path are not the cells of the report"},
		{"a leg made up", func(r *ConformanceReport) {
			const why = "the leg was not reached, or broke off"
			r.Path.Legs = append(r.Path.Legs, PathLeg{Cell: "4-moon", Claims: []Claim{{ClaimObjects, verdicts.Invalid, why}}})
			r.Outcome.Result, r.Outcome.ExitCode = RunInvalid, ExitInvalid
			r.Outcome.Reasons = append([]string{"4-moon: " + ClaimObjects + ": " + why}, r.Outcome.Reasons...)
		}, "the legs of the path are not the cells of the report"},
		{"the path left out", func(r *ConformanceReport) {
			r.Path = nil
			passed(r)
		}, someLeg + ": the report has no leg for this evidence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			writtenPath(t, dir, func(p *PathReport) { p.Evidence[2].Objects[1].Body = `{"kind":"Z"}` })
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
