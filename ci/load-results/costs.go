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
	// Tool is the version of authzconf that made the run, Command how it was started, Digest that of its record.
	Tool    string
	Command []string
	Digest  string
	// Evidence is the name of the archive beside the page that has what the run follows from; empty if only its digest was
	// published.
	Evidence string
	// served is how long requests took according to the API servers.
	served []servedVariant
	// folder is that of the report, of a run that is read now.
	folder string
	// who says who took part, where the blocks are not there to say it.
	who string
}

// Who returns who took part, and how often each asked.
func (c column) Who() string { return cmp.Or(c.who, c.Run.DescribeAgents()) }

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
	variants := seq.Map(col.Result.Variants, func(v judge.Variant) judge.VariantKey {
		return judge.VariantKey{Variant: v.Variant, Server: v.Server}
	})
	c.Variants = seq.AppendMissing(c.Variants, variants...)
}

// newCost puts runs side by side, and gives each the title that tells it from the others.
func newCost(runs ...column) *Cost {
	c := &Cost{}
	for _, run := range runs {
		c.add(run)
	}
	c.sort()
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

// sort puts runs in order of profile, agents, accounts, then authorizer.
func (c *Cost) sort() {
	slices.SortStableFunc(c.Columns, func(x, y column) int {
		return cmp.Or(cmp.Compare(x.Run.Profile, y.Run.Profile), x.Run.Agents-y.Run.Agents, x.Run.Population.ServiceAccounts-y.Run.Population.ServiceAccounts,
			cmp.Compare(x.Run.Authorizer, y.Run.Authorizer), cmp.Compare(x.Run.Population.Every, y.Run.Population.Every))
	})
	slices.SortFunc(c.Variants, judge.VariantKey.Compare)
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

// Legacy is legacy impersonation without the gate: by user and group, as node agents have to, or else by the user alone.
func (c column) Legacy() *judge.Variant {
	return cmp.Or(c.Measured(legacyByGroup), c.Measured(legacyByName))
}

// Markdown has a table for each thing that was measured, with a variant in each row and a run in each column, then
// the comparisons, and whether the runs were sound. plots are the names of SVG files to show, if any.
func (c *Cost) Markdown(plots ...string) ([]byte, error) {
	return markdown("part", struct {
		*Cost
		Plots []string
	}{c, plots})
}

// describeLevels returns what priority and fairness did with the requests of a variant, level by level: how many it
// dispatched, how long each waited in the mean, and how many it rejected.
func describeLevels(v *judge.Variant) string {
	return strings.Join(seq.Map(judge.SumLevels(v.FlowControl), judge.LevelCounts.String), "; ")
}

func formatDuration(d run.Duration) string { return time.Duration(d).String() }
