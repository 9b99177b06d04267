package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// Cost is several runs side by side: what each variant costs at each number of agents and with each authorizer.
type Cost struct {
	Columns  []column // the runs, Variants the rows: every variant on its server
	Variants []judge.VariantKey
}

// column is one run.
type column struct {
	Title  string
	Run    run.Run
	Result judge.Result
	// Command is how the storm was started, Digest that of its record.
	Command []string
	Digest  string
}

// Measured is what the run has of a variant, nil if it has nothing.
func (c column) Measured(key judge.VariantKey) *judge.Variant {
	i := slices.IndexFunc(c.Result.Variants, func(v judge.Variant) bool { return v.Variant == key.Variant && v.Server == key.Server })
	if i < 0 {
		return nil
	}
	return &c.Result.Variants[i]
}

// titles are what tells runs from each other.
var titles = []func(r *run.Run) string{
	func(r *run.Run) string { return r.Profile },
	func(r *run.Run) string { return reports.Plural(r.Agents, "agent") },
	func(r *run.Run) string { return reports.Plural(r.Population.ServiceAccounts, "ServiceAccount") },
	func(r *run.Run) string { return r.Authorizer },
	func(r *run.Run) string {
		if r.Population.Every == 0 {
			return "once a block"
		}
		return "every " + formatDuration(r.Population.Every)
	},
}

func (c *Cost) add(col column) {
	c.Columns = append(c.Columns, col)
	c.Variants = seq.AppendMissing(c.Variants, seq.Map(col.Result.Variants, func(v judge.Variant) judge.VariantKey { return judge.VariantKey{Variant: v.Variant, Server: v.Server} })...)
}

// newCost puts runs in order of profile, agents, accounts, then authorizer.
func newCost(runs ...column) *Cost {
	c := &Cost{}
	for _, run := range runs {
		c.add(run)
	}
	slices.SortStableFunc(c.Columns, func(x, y column) int {
		return cmp.Or(cmp.Compare(x.Run.Profile, y.Run.Profile), x.Run.Agents-y.Run.Agents, x.Run.Population.ServiceAccounts-y.Run.Population.ServiceAccounts,
			cmp.Compare(x.Run.Authorizer, y.Run.Authorizer))
	})
	slices.SortFunc(c.Variants, judge.VariantKey.Compare)
	for _, title := range titles {
		if first := title(&c.Columns[0].Run); !slices.ContainsFunc(c.Columns, func(col column) bool { return title(&col.Run) != first }) {
			continue
		}
		for i := range c.Columns {
			col := &c.Columns[i]
			col.Title = strings.TrimPrefix(col.Title+", "+title(&col.Run), ", ")
		}
	}
	for i := range c.Columns { // runs that differ in nothing that is known
		c.Columns[i].Title = cmp.Or(c.Columns[i].Title, fmt.Sprintf("%s, run %d", c.Columns[i].Run.Profile, i+1))
	}
	return c
}

func (c *Cost) base(i int) string {
	return strings.TrimRight(c.Columns[i].Run.Profile, "-0123456789")
}

func (c column) length() run.Duration {
	if len(c.Run.Blocks) == 0 {
		return 0
	}
	return c.Run.Blocks[0].Length
}

// Asks is how often each pod asks.
func (c column) Asks() string {
	if every := c.Run.Population.Every; every > 0 {
		return "every " + formatDuration(every)
	}
	return "once in " + formatDuration(c.length())
}

// Legacy is legacy impersonation without the gate.
func (c column) Legacy() *judge.Variant {
	return c.Measured(judge.VariantKey{Variant: "legacy-gate-off", Server: "gate-off"})
}

// Markdown has a table for each thing that was measured, with a variant in each row and a run in each column, then
// the comparisons, and whether the runs were sound. plots are the names of SVG files to show, if any.
func (c *Cost) Markdown(drawn ...string) ([]byte, error) {
	return markdown("part", struct {
		*Cost
		Plots []string
	}{c, drawn})
}

// describeQueues returns the mean wait of a request dispatched, in ms, and how many were rejected, over all priority levels.
func describeQueues(v *judge.Variant) string {
	sums := map[string]float64{}
	for name, n := range v.FlowControl {
		if c := run.ParseFlowCounter(name); c.Level != "exempt" { // what measures, not what is measured
			sums[c.What] += n
		}
	}
	return fmt.Sprintf("%.2f, %g", 1000*sums["waited"]/max(sums["dispatched"], 1), sums["rejected"])
}

func formatDuration(d run.Duration) string { return time.Duration(d).String() }
