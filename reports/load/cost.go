package load

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports/load/run"
)

// Cost is several runs side by side: what each variant costs at each number of agents and each delay of the webhook.
type Cost struct {
	// Columns are the runs, Variants the rows: every variant on its server.
	Columns  []column
	Variants []curveOf
	curves   costPlots
}

// column is one run.
type column struct {
	Run            *run.Run
	Result         Result
	Title, Outcome string
	delay          time.Duration
}

// Measured is what the run has of a variant, nil if it has nothing.
func (c column) Measured(of curveOf) *Variant {
	i := slices.IndexFunc(c.Result.Variants, func(v Variant) bool { return v.Variant == of.Variant && v.Server == of.Server })
	if i < 0 {
		return nil
	}
	return &c.Result.Variants[i]
}

// Version is that of the first server.
func (c column) Version() string {
	if len(c.Run.Servers) == 0 {
		return ""
	}
	return c.Run.Servers[0].GitVersion
}

// Length is that of the first block.
func (c column) Length() time.Duration {
	if len(c.Run.Blocks) == 0 {
		return 0
	}
	return time.Duration(c.Run.Blocks[0].Length)
}

// NewCost judges each run by its own thresholds. Runs are put in order of agents, then of delay.
func NewCost(runs ...Saved) (*Cost, error) {
	if len(runs) < 2 {
		return nil, errors.New("one run has no curve: expected two or more")
	}
	c := &Cost{}
	delays, profiles, accounts := map[time.Duration]bool{}, map[string]bool{}, map[bool]bool{}
	for _, s := range runs {
		col := column{Run: &s.Run}
		if s.Thresholds != nil {
			col.Result = Judge(s.Run, *s.Thresholds)
			col.Outcome = string(col.Result.Outcome)
		} else {
			col.Result = Judge(s.Run, Thresholds{MinPairs: max(s.Run.Pairs, 1)})
			col.Outcome = "not judged: its thresholds are not known without its " + reportFile
		}
		if len(s.Run.Servers) > 0 {
			col.delay = time.Duration(s.Run.Servers[0].WebhookDelay)
		}
		delays[col.delay], profiles[s.Run.Profile], accounts[s.Run.Population.Shared()] = true, true, true
		c.Columns = append(c.Columns, col)
		for _, b := range s.Run.Blocks {
			if row := (curveOf{b.Variant, b.Server}); !slices.Contains(c.Variants, row) {
				c.Variants = append(c.Variants, row)
			}
		}
	}
	slices.SortStableFunc(c.Columns, func(x, y column) int {
		return cmp.Or(cmp.Compare(x.Run.Profile, y.Run.Profile), x.Run.Agents-y.Run.Agents, x.Run.Population.ServiceAccounts-y.Run.Population.ServiceAccounts, cmp.Compare(x.delay, y.delay))
	})
	slices.SortFunc(c.Variants, func(x, y curveOf) int {
		return cmp.Or(cmp.Compare(x.Variant, y.Variant), cmp.Compare(x.Server, y.Server))
	})
	var results []*Result
	for i := range c.Columns {
		col := &c.Columns[i]
		results = append(results, &col.Result)
		col.Title = counted(col.Run.Agents, "agent")
		if len(accounts) > 1 {
			col.Title += ", " + counted(col.Run.Population.ServiceAccounts, "ServiceAccount")
		}
		if len(delays) > 1 {
			col.Title += ", webhook " + col.delay.String()
		}
		if len(profiles) > 1 {
			col.Title += ", " + col.Run.Profile
		}
	}
	var err error
	c.curves, err = plotCost(results...)
	return c, err
}

// Files are README.md and, where the numbers of agents differ, the curves: cost.html and SVG files.
func (c *Cost) Files() (map[string][]byte, error) {
	if len(c.curves.Names) == 0 {
		text, err := c.Markdown()
		return map[string][]byte{"README.md": text}, err
	}
	text, err := c.Markdown("cpu", "reviews")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	p := page{Plots: map[string]template.HTML{}}
	p.addCost(c.curves)
	if err := pageTemplates.ExecuteTemplate(&b, "cost", p); err != nil {
		return nil, err
	}
	return map[string][]byte{
		"README.md": text, "cost.html": b.Bytes(), "reviews.svg": []byte(c.curves.Reviews), "cpu.svg": []byte(c.curves.CPU),
	}, nil
}

// Write writes Files to a folder.
func (c *Cost) Write(dir string) error {
	files, err := c.Files()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for name, data := range files {
		err = cmp.Or(err, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return err
}

// costTable is about one thing that was measured.
type costTable struct {
	Title, Note string
	Cell        func(*Variant) string
}

// rateCell is "2.050 (2.050)", or "–" if there was no such block.
func rateCell(r *ReviewRate) string {
	switch {
	case r == nil:
		return "–"
	case r.Predicted == nil:
		return fmt.Sprintf("%.3f", r.PerRequest.Estimate)
	}
	return fmt.Sprintf("%.3f (%s)", r.PerRequest.Estimate, r.Predicted)
}

var costTables = []costTable{
	{"Access reviews per request", "Mean of the blocks in which every agent had asked before, or of all if there is none; in brackets the prediction for their schedules.", func(v *Variant) string {
		return rateCell(&v.Reviews)
	}},
	{"Access reviews per request at first contact", "Of the blocks of which every request was the first of its agent.", func(v *Variant) string {
		return rateCell(v.FirstContact)
	}},
	{"Reviews per second at the authorizer", "", func(v *Variant) string { return fmt.Sprintf("%.1f", v.ReviewsPerSecond) }},
	{"Latency", "p50 / p99 in ms, from the intended send, all blocks together. Variants ran one after the other: the comparisons below are what tells them apart.",
		func(v *Variant) string { return fmt.Sprintf("%.2f / %.1f", v.P50.Milliseconds, v.P99.Milliseconds) }},
	{"CPU time of the API server per request", "In ms.", func(v *Variant) string { return fmt.Sprintf("%.2f", v.ServerCPU) }},
	{"Memory of the API server", "Most at a block's end, in MiB. Blocks of all variants run in the same process.", func(v *Variant) string { return fmt.Sprint(v.ServerRSS >> 20) }},
	{"Priority and fairness", "Mean time in the API server's queues in ms per request dispatched, and requests rejected.", func(v *Variant) string {
		waited, dispatched, rejected := flowControlOf(v)
		return fmt.Sprintf("%.2f, %g", 1000*waited/max(dispatched, 1), rejected)
	}},
	{"Requests", "Answered per second, and errors of all answers.", func(v *Variant) string {
		return fmt.Sprintf("%.1f/s, %d of %d", v.Rate, v.Errors, v.Done)
	}},
}

// Markdown has a table for each thing that was measured, with a variant in each row and a run in each column, then
// the comparisons, and whether the runs were sound. plots are the names of SVG files to show, if any.
func (c *Cost) Markdown(plots ...string) ([]byte, error) {
	return markdown("cost", struct {
		*Cost
		Plots  []string
		Tables []costTable
	}{c, plots, costTables})
}

// flowControlOf sums over priority levels: seconds waited, requests dispatched and rejected.
func flowControlOf(v *Variant) (waited, dispatched, rejected float64) {
	for name, n := range v.FlowControl {
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
