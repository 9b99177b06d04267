package main

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/reports/statistics"
)

// reviewed is a run of so many agents in which the gate adds reviews to each request, in a phase.
func reviewed(title string, agents int, of string, added float64) column {
	rate := func(reviews float64) judge.ReviewRate {
		return judge.ReviewRate{
			Of:         of,
			Blocks:     3,
			PerRequest: statistics.Interval{Estimate: reviews},
			Predicted:  &judge.Range{Low: reviews, High: reviews},
		}
	}
	return column{Title: title, Result: judge.Result{Variants: []judge.Variant{
		{Variant: "legacy-node", Server: "gate-off", Agents: agents, Reviews: rate(3)},
		{Variant: "legacy-node", Server: "gate-on", Agents: agents, Reviews: rate(3 + added)},
	}}}
}

// TestAnswerQuestions: of runs without a steady state that with the most agents answers in which all had asked before, and of
// steady states each; what was disturbed answers nothing.
func TestAnswerQuestions(t *testing.T) {
	small, large := reviewed("small", 10, judge.AskedBefore, 1), reviewed("large", 1000, judge.AskedBefore, 2)
	steady, disturbed := reviewed("steady", 5, judge.SteadyState, 0.5), reviewed("disturbed", 5000, judge.AskedBefore, 9)
	mixed := reviewed("mixed", 5000, judge.AllBlocks, 7)
	disturbed.Result.Checks = []judge.Check{{Name: judge.Undisturbed, State: judge.Broken}}
	for want, columns := range map[string][]column{
		"not measured":       nil,
		"3.000 → 4.000":      {small},
		"3.000 → 5.000":      {small, large, disturbed, mixed},
		"3.000 → 10.000":     {mixed},
		"3.000 → 3.500":      {small, steady, large},
		"predicted 4.000":    {small},
		"3 and 3 blocks":     {small},
		"steady state":       {steady},
		"legacy-node: small": {small},
	} {
		parts := []Part{{Name: "reviews", Cost: &Cost{Columns: columns}}}
		first := answerQuestions(parts)[0]
		if text := strings.Join([]string{first.Answer, first.HowMany, first.Interval, first.Where}, " | "); !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
		if isMeasured := columns != nil; isMeasured != (first.Part == "reviews") {
			t.Errorf("%q: the row is from the part %q", want, first.Part)
		}
	}
	// Legacy impersonation by name and group with the gate off is not compared with that by the name alone.
	others := reviewed("others", 10, judge.AskedBefore, 0)
	others.Result.Variants[1].Variant = "legacy-gate-on"
	if first := answerQuestions([]Part{{Name: "reviews", Cost: &Cost{Columns: []column{others}}}})[0]; first.Answer != "not measured" {
		t.Errorf("other headers are compared: %q", first.Answer)
	}
	for _, a := range answerQuestions(nil) {
		if !strings.HasPrefix(a.Answer, "not ") {
			t.Errorf("nothing was measured, and %q is answered %q", a.Question, a.Answer)
		}
	}
}
