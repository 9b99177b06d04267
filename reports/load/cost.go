package load

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/load/run"
)

// Cost is several runs side by side: what each variant costs at each number of agents
// and each delay of the webhook.
type Cost struct {
	columns []column
	// variants are the rows: every variant on its server, in the order of the profile.
	variants []curveOf
	// The curves, drawn once; empty if no variant ran with several numbers of agents.
	reviews, cpu string
	names        []string
}

// column is one run.
type column struct {
	run    *run.Run
	result Result
	delay  time.Duration
	title  string
}

// NewCost judges the runs without their thresholds: it is about what was measured,
// and whether that was sound. Runs are put in order of agents, then of delay.
func NewCost(runs ...*run.Run) (*Cost, error) {
	if len(runs) < 2 {
		return nil, errors.New("one run has no curve: expected two or more")
	}
	c := &Cost{}
	delays, profiles := map[time.Duration]bool{}, map[string]bool{}
	for _, r := range runs {
		col := column{run: r, result: Judge(*r, Thresholds{MinPairs: max(r.Pairs, 1)})}
		if len(r.Servers) > 0 {
			col.delay = time.Duration(r.Servers[0].WebhookDelay)
		}
		delays[col.delay], profiles[r.Profile] = true, true
		c.columns = append(c.columns, col)
		for _, b := range r.Blocks {
			if variant := (curveOf{b.Variant, b.Server}); !slices.Contains(c.variants, variant) {
				c.variants = append(c.variants, variant)
			}
		}
	}
	slices.SortStableFunc(c.columns, func(x, y column) int {
		return cmp.Or(cmp.Compare(x.run.Profile, y.run.Profile), x.run.Agents-y.run.Agents, cmp.Compare(x.delay, y.delay))
	})
	slices.SortFunc(c.variants, func(x, y curveOf) int {
		return cmp.Or(cmp.Compare(x.variant, y.variant), cmp.Compare(x.server, y.server))
	})
	for i := range c.columns {
		col := &c.columns[i]
		col.title = counted(col.run.Agents, "agent")
		if len(delays) > 1 {
			col.title += ", webhook " + col.delay.String()
		}
		if len(profiles) > 1 {
			col.title += ", " + col.run.Profile
		}
	}
	var err error
	c.reviews, c.cpu, c.names, err = CostPlots(c.results()...)
	return c, err
}

// Markdown has a table for each thing that was measured, with a variant in each row
// and a run in each column, then the comparisons, and whether the runs were
// sound. plots are the names of picture files to show, if any.
func (c *Cost) Markdown(plots ...string) []byte {
	b := &strings.Builder{}
	b.WriteString("# What each variant costs\n\n")
	c.circumstances(b)
	for _, p := range plots {
		fmt.Fprintf(b, "![%s by number of agents](%s)\n\n", strings.TrimSuffix(p, ".svg"), p)
	}
	if len(plots) > 0 {
		b.WriteString("cost.html has the same curves with the names of the variants.\n\n")
	}
	c.table(b, "Access reviews per request", "Mean of the blocks; in brackets the oracle's prediction for a known and an unknown agent.", func(a Variant) string {
		s := fmt.Sprintf("%.3f", a.Reviews.PerRequest.Estimate)
		if p := a.Reviews.Predicted; p != nil && p.Warm == p.Cold {
			s += fmt.Sprintf(" (%g)", p.Cold)
		} else if p != nil {
			s += fmt.Sprintf(" (%g to %g)", p.Warm, p.Cold)
		}
		return s
	})
	c.table(b, "Reviews per second at the authorizer", "", func(a Variant) string { return fmt.Sprintf("%.1f", a.ReviewsPerSecond) })
	c.table(b, "Latency", "p50 / p99 in ms, from the intended send, all blocks together. Variants ran one after the other: the comparisons below are what tells them apart.",
		func(a Variant) string { return fmt.Sprintf("%.2f / %.1f", a.P50.Milliseconds, a.P99.Milliseconds) })
	c.table(b, "CPU time of the API server per request", "In ms.", func(a Variant) string { return fmt.Sprintf("%.2f", a.ServerCPU) })
	c.table(b, "Memory of the API server", "Most at a block's end, in MiB. Blocks of all variants run in the same process.", func(a Variant) string { return fmt.Sprint(a.ServerRSS >> 20) })
	c.table(b, "Priority and fairness", "Mean time in the API server's queues in ms per request dispatched, and requests rejected.", func(a Variant) string {
		waited, dispatched, rejected := flowControlOf(a)
		return fmt.Sprintf("%.2f, %g", 1000*waited/max(dispatched, 1), rejected)
	})
	c.table(b, "Requests", "Answered per second, and errors of all answers.", func(a Variant) string {
		return fmt.Sprintf("%.1f/s, %d of %d", a.Rate, a.Errors, a.Done)
	})
	c.comparisons(b)
	c.soundness(b)
	return []byte(b.String())
}

// flowControlOf sums over priority levels: seconds waited, requests dispatched and
// rejected.
func flowControlOf(a Variant) (waited, dispatched, rejected float64) {
	for name, n := range a.FlowControl {
		switch {
		case strings.Contains(name, " exempt"): // what measures, not what is measured
		case strings.HasPrefix(name, "waited "):
			waited += n
		case strings.HasPrefix(name, "dispatched "):
			dispatched += n
		case strings.HasPrefix(name, "rejected "):
			rejected += n
		}
	}
	return waited, dispatched, rejected
}

func (c *Cost) circumstances(b *strings.Builder) {
	b.WriteString("| run | Kubernetes | CPUs | seed | blocks | length | load before, after | outcome |\n|---|---|--:|--:|--:|--:|---|---|\n")
	for _, col := range c.columns {
		r := col.run
		version, length := "", time.Duration(0)
		if len(r.Servers) > 0 {
			version = r.Servers[0].GitVersion
		}
		if len(r.Blocks) > 0 {
			length = time.Duration(r.Blocks[0].Length)
		}
		fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %s | %.1f, %.1f | %s |\n", md(col.title), md(version), r.Machine.CPUs, r.Seed, len(r.Blocks), length,
			r.Machine.LoadBefore, r.Machine.LoadAfter, col.result.Outcome)
	}
	b.WriteString("\n")
}

// table has a variant in each row and a run in each column.
func (c *Cost) table(b *strings.Builder, title, note string, cell func(Variant) string) {
	fmt.Fprintf(b, "## %s\n\n", title)
	if note != "" {
		fmt.Fprintf(b, "%s\n\n", note)
	}
	b.WriteString("| variant |")
	for _, col := range c.columns {
		fmt.Fprintf(b, " %s |", md(col.title))
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(c.columns)) + "\n")
	for _, variant := range c.variants {
		fmt.Fprintf(b, "| %s on %s |", md(variant.variant), md(variant.server))
		for _, col := range c.columns {
			i := slices.IndexFunc(col.result.Variants, func(a Variant) bool { return a.Variant == variant.variant && a.Server == variant.server })
			if i < 0 {
				b.WriteString(" not run |")
				continue
			}
			fmt.Fprintf(b, " %s |", cell(col.result.Variants[i]))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (c *Cost) comparisons(b *strings.Builder) {
	b.WriteString("## Comparisons\n\nHow much longer B takes than A, with 95 % intervals over pairs of blocks.\n\n")
	b.WriteString("| run | A | B | pairs | p50 | p99 |\n|---|---|---|--:|---|---|\n")
	for _, col := range c.columns {
		for _, k := range col.result.Comparisons {
			fmt.Fprintf(b, "| %s | %s | %s | %d | %s | %s |\n", md(col.title), md(k.A), md(k.B), k.Pairs, md(shortEffect(k.P50)), md(shortEffect(k.P99)))
		}
	}
	b.WriteString("\n")
}

func shortEffect(e Effect) string {
	if !e.Measured {
		return e.Why
	}
	return changeText(e) + ", " + millisecondsText(e)
}

func (c *Cost) soundness(b *strings.Builder) {
	b.WriteString("## Were the runs sound?\n\n")
	for _, col := range c.columns {
		for _, check := range col.result.Checks {
			if check.State != Held {
				fmt.Fprintf(b, "- %s: %s %s: %s\n", md(col.title), md(check.Name), check.State, md(check.Detail))
			}
		}
	}
	b.WriteString("- Every check that is not named here held.\n")
}

// Pictures are the curves of cost against the number of agents, as SVG files by
// name. There are none if no variant ran with several numbers.
func (c *Cost) Pictures() map[string][]byte {
	if len(c.names) == 0 {
		return nil
	}
	return map[string][]byte{"reviews.svg": []byte(c.reviews), "cpu.svg": []byte(c.cpu)}
}

// HTML is a page of its own with the curves. An error says that there is no variant
// with several numbers of agents.
func (c *Cost) HTML() ([]byte, error) {
	if len(c.names) == 0 {
		return nil, errors.New("no variant ran with several numbers of agents")
	}
	var b bytes.Buffer
	err := pageTemplates.ExecuteTemplate(&b, "cost", page{CostNames: c.names, Plots: map[string]template.HTML{
		"costReviews": template.HTML(c.reviews), "costCPU": template.HTML(c.cpu),
	}})
	return b.Bytes(), err
}

func (c *Cost) results() (results []*Result) {
	for i := range c.columns {
		results = append(results, &c.columns[i].result)
	}
	return results
}
