package loadgen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/plots"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/statistics"
)

// addForest adds a plot that has rows.
func addForest(s *reports.Section, title string, f statistics.ForestPlot) {
	if len(f.Rows) > 0 {
		s.Plots = append(s.Plots, statistics.Plot{Title: title, Forest: &f})
	}
}

// addChart adds a plot in which there is something to draw.
func addChart(s *reports.Section, title string, c statistics.Chart) {
	if slices.ContainsFunc(c.Curves, func(c statistics.Curve) bool { return len(c.Points) > 0 }) {
		s.Plots = append(s.Plots, statistics.Plot{Title: title, Chart: &c})
	}
}

func variantsSection(result *judge.Result, groups []judge.VariantBlocks) reports.Section {
	t := reports.Table{
		Columns: []string{"variant", "agents", "requests", "requests/s", "late", "never sent", "errors", "asked again after", "p50", "p99"},
		Numeric: []int{1, 2, 3, 4, 5, 6},
	}
	for _, v := range result.Variants {
		t.Rows = append(t.Rows, reports.Row{Cells: []string{
			v.Name, fmt.Sprint(v.Agents), fmt.Sprint(v.Sent), fmt.Sprintf("%.1f", v.Rate), fmt.Sprint(v.Late), fmt.Sprint(v.Dropped),
			fmt.Sprintf("%d of %d", v.Errors, v.Done), describeRetries(v.Again), v.P50.String(), v.P99.String(),
		}})
	}
	s := reports.Section{ID: "variants", Title: "Variants", Text: []string{
		"Latencies are from the intended send. Variants ran one after the other: the comparisons tell them apart.",
	}}
	addChart(&s, "Latency by percentile", plots.Latencies(groups))
	return withTable(s, t)
}

// describeRetries returns the answers after which agents asked again.
func describeRetries(retries map[string]int64) string {
	return strings.Join(
		seq.Map(slices.Sorted(maps.Keys(retries)), func(status string) string { return fmt.Sprintf("%d × %s", retries[status], status) }),
		", ",
	)
}

func reviewsSection(result *judge.Result, groups []judge.VariantBlocks) reports.Section {
	rates := reports.Table{
		Title:   "Access reviews per request",
		Columns: []string{"variant", "blocks", "of", "per request", "predicted", "", "per second", "most in a second"},
		Numeric: []int{1, 6, 7},
	}
	kinds := reports.Table{
		Title:   "By mode, verb and decision",
		Columns: []string{"variant", "of", "mode", "verb", "decision", "per request", "predicted"}, Numeric: []int{5},
	}
	calls := reports.Table{
		Title:   "Reviews that the API server sent to its webhooks, by its own count",
		Columns: []string{"variant", "per request"}, Numeric: []int{1},
	}
	for _, v := range result.Variants {
		for _, rate := range phases(v) {
			rates.Rows = append(rates.Rows, reports.Row{Cells: []string{
				v.Name, fmt.Sprint(rate.Blocks), rate.Of, rate.String(), describePrediction(rate.Predicted), rate.Verdict,
				fmt.Sprintf("%.1f", v.ReviewsPerSecond), fmt.Sprint(v.MostReviews),
			}})
			for _, c := range rate.Checks {
				kinds.Rows = append(kinds.Rows, reports.Row{Cells: []string{
					v.Name, rate.Of, c.Mode, c.Verb, c.Decision, fmt.Sprintf("%.3f", c.PerRequest), describePrediction(c.Predicted),
				}})
			}
		}
	}
	for _, v := range result.Variants {
		if v.WebhookCalls > 0 {
			calls.Rows = append(calls.Rows, reports.Row{Cells: []string{v.Name, fmt.Sprintf("%.3f", v.WebhookCalls)}})
		}
	}
	s := reports.Section{ID: "reviews", Title: "Access reviews", Text: []string{
		"The review of the request itself is included. The prediction is the oracle's, for the requests that were sent and when.",
	}}
	addForest(&s, "Access reviews per request, beside the prediction", plots.Reviews(result.Variants))
	addChart(&s, "Access reviews over time", plots.Timeline(groups))
	return withTable(withTable(withTable(s, rates), kinds), calls)
}

// phases returns the reviews of a variant at first contact, if there are any, and later.
func phases(v judge.Variant) (rates []judge.ReviewRate) {
	if v.FirstContact != nil {
		rates = append(rates, *v.FirstContact)
	}
	return append(rates, v.Reviews)
}

func describePrediction(r *judge.Range) string {
	if r == nil {
		return ""
	}
	return r.String()
}

func comparisonsSection(result *judge.Result) reports.Section {
	t := reports.Table{
		Columns: []string{"comparison", "A", "B", "pairs", "starts", "", "change", "difference", "p", "within the margin"},
		Numeric: []int{3, 4},
	}
	for _, c := range result.Comparisons {
		for _, e := range []struct {
			name string
			judge.Effect
		}{{"p50", c.P50}, {"p99", c.P99}, {"CPU", c.CPU}} {
			t.Rows = append(t.Rows, reports.Row{Cells: []string{
				comparisonTitle(c), c.Baseline(), c.B, fmt.Sprint(c.Pairs), fmt.Sprint(c.Starts), e.name,
				e.DescribeChange(), e.DescribeMilliseconds(), e.DescribeP(), e.DescribeMargin(),
			}})
		}
	}
	if len(t.Rows) == 0 {
		return reports.Section{}
	}
	s := reports.Section{ID: "comparisons", Title: "Comparisons", Text: []string{
		"How much longer B takes than A: intervals (95 %) and p by Student's t over starts of the servers; p also adjusted (Holm).",
	}}
	addForest(&s, "How much longer B takes than A, 90 % intervals", plots.Effects(result.Comparisons))
	return withTable(withTable(s, t), functionsTable(result.Comparisons))
}

func comparisonTitle(c judge.Comparison) string {
	if c.AA {
		return c.Name + " (A/A)"
	}
	return c.Name
}

// functionsTable shows where programs spent their processor time, by their CPU profiles in the last pair.
func functionsTable(comparisons []judge.Comparison) reports.Table {
	t := reports.Table{
		Title:   "Where programs spent their processor time: shares of the samples of CPU profiles in the last pair",
		Columns: []string{"comparison", "program", "samples of A, B", "", "function", "A, then B"},
	}
	for _, c := range comparisons {
		for _, p := range c.Profiles {
			add := func(what string, functions []judge.FunctionShare) {
				for _, f := range functions {
					t.Rows = append(t.Rows, reports.Row{Cells: []string{
						c.Name, p.Program, fmt.Sprintf("%d, %d", p.SamplesA, p.SamplesB), what, f.Function, f.String(),
					}})
				}
			}
			add("differs by more than chance", p.Differ)
			add("most", p.Top)
		}
	}
	return t
}

func usageSection(result *judge.Result) reports.Section {
	t := reports.Table{
		Columns: []string{
			"variant",
			"program",
			"CPU per request above idle",
			"idle, % of a processor",
			"memory, MiB",
			"peak heap, MiB",
			"allocated per request, KiB",
			"GCs",
		},
		Numeric: []int{2, 3, 4, 5, 6, 7},
	}
	for _, v := range result.Variants {
		for _, name := range slices.Sorted(maps.Keys(v.Usage)) {
			u := v.Usage[name]
			t.Rows = append(t.Rows, reports.Row{Cells: []string{
				v.Name,
				name,
				fmt.Sprintf("%.2f ms", u.PerRequest),
				fmt.Sprintf("%.1f", 100*u.Idle),
				fmt.Sprint(u.RSS >> 20),
				fmt.Sprint(u.PeakHeap >> 20),
				fmt.Sprintf("%.1f", u.Allocated/1024),
				fmt.Sprint(u.GCs),
			}})
		}
	}
	return withTable(reports.Section{ID: "usage", Title: "CPU and memory"}, t)
}

// flowControlSection shows what priority and fairness did, by priority level.
func flowControlSection(result *judge.Result) reports.Section {
	t := reports.Table{Columns: []string{"variant", "priority level", "dispatched", "waited, ms each", "rejected"}, Numeric: []int{2, 3}}
	for _, v := range result.Variants {
		for _, l := range judge.SumLevels(v.FlowControl) {
			t.Rows = append(t.Rows,
				reports.Row{
					Cells: []string{
						v.Name,
						l.Level,
						fmt.Sprintf("%.0f", l.Dispatched),
						fmt.Sprintf("%.2f", l.MeanWait()),
						l.DescribeRejected(),
					},
				},
			)
		}
	}
	s := reports.Section{ID: "flow-control", Title: "Priority and fairness", Text: []string{
		"By priority level, in all blocks. Where two sides are in different levels, which have other queues and other requests in them, they are not compared by time.",
	}}
	if len(t.Rows) == 0 {
		return reports.Section{}
	}
	return withTable(s, t)
}
