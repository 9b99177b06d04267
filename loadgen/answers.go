package loadgen

import (
	"cmp"
	"fmt"
	"time"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// makeAnswers returns what a storm was made to find out: the reviews that a request costs, and how much longer the
// sides of comparisons take where something is claimed about that. It returns nil if nothing was measured.
func makeAnswers(r *run.Run, result *judge.Result) *reports.Table {
	t := &reports.Table{Title: "For " + describeWhere(r), Columns: []string{"question", "answer", "how many", "interval", "where it holds"}}
	add := func(cells ...string) { t.Rows = append(t.Rows, reports.Row{Cells: cells}) }
	for _, v := range result.Variants {
		for _, rate := range phases(v) {
			add(
				"reviews per request: "+v.Name,
				fmt.Sprintf("%.3f", rate.PerRequest.Estimate),
				reports.Plural(rate.Blocks, "block"),
				describeRateInterval(rate),
				rate.Of,
			)
		}
	}
	for _, c := range result.Comparisons {
		if c.AA || !isAboutTime(c) {
			continue
		}
		for _, e := range []struct {
			name string
			judge.Effect
		}{{"p50", c.P50}, {"p99", c.P99}, {"CPU of the API server per request", c.CPU}} {
			answer, interval := "unknown", e.Why
			if e.Measured {
				answer, interval = judge.FormatChange(e.Change.Estimate), e.DescribeInterval()
			}
			add(
				fmt.Sprintf("%s: %s against %s", e.name, c.B, c.Baseline()),
				answer,
				fmt.Sprintf("%s in %s", reports.Plural(c.Pairs, "pair"), reports.Plural(c.Starts, "start")),
				interval,
				describeLevel(c),
			)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// isAboutTime reports whether a comparison was made to say something of a difference in time.
func isAboutTime(c judge.Comparison) bool {
	return c.Measured() || c.P50.Margin > 0 || c.P99.Margin > 0 || c.CPU.Margin > 0
}

// describeRateInterval returns the bounds of the reviews per request: those of the mean over blocks or, if there are
// none, those that the model predicts.
func describeRateInterval(rate judge.ReviewRate) string {
	switch {
	case rate.Predicted != nil:
		return rate.Verdict + ": " + rate.Predicted.String()
	case rate.Bounded:
		return fmt.Sprintf("[%.3f, %.3f]", rate.PerRequest.Low, rate.PerRequest.High)
	}
	return "not known"
}

// describeWhere returns the circumstances of a run, to which all its answers are limited.
func describeWhere(r *run.Run) string {
	p := r.Population
	often := "each once a block"
	if p.Every > 0 {
		often = "each every " + time.Duration(p.Every).String()
	}
	text := fmt.Sprintf(
		"%s with %s, %s; authorizer %s",
		reports.Plural(r.Agents, "agent"),
		reports.Plural(p.ServiceAccounts, "account"),
		often,
		cmp.Or(r.Authorizer, "not known"),
	)
	if len(r.Servers) > 0 {
		text += "; " + r.Servers[0].GitVersion
	}
	return text
}

// describeLevel returns the priority level of both sides, if they have one together.
func describeLevel(c judge.Comparison) string {
	if c.LevelA == "" || c.LevelA != c.LevelB {
		return "in all blocks"
	}
	return "in the priority level " + c.LevelA
}
