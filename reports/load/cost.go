package load

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Cost is several runs side by side: what each variant costs at each number of agents and with each authorizer.
type Cost struct {
	// Columns are the runs, Variants the rows: every variant on its server.
	Columns  []column
	Variants []variantKey
}

// column is one run.
type column struct {
	Saved
	Result Result
	Title  string
}

// Measured is what the run has of a variant, nil if it has nothing.
func (c column) Measured(of variantKey) *Variant {
	i := slices.IndexFunc(c.Result.Variants, func(v Variant) bool { return v.Variant == of.variant && v.Server == of.server })
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
}

// NewCost judges each run by its own thresholds. Runs are put in order of profile, agents, accounts, then authorizer.
func NewCost(runs ...Saved) *Cost {
	c := &Cost{}
	for _, s := range runs {
		c.Columns = append(c.Columns, column{Saved: s, Result: Judge(s.Run, s.Thresholds)})
		for _, g := range groupVariants(&s.Run) {
			if !slices.Contains(c.Variants, g.key) {
				c.Variants = append(c.Variants, g.key)
			}
		}
	}
	slices.SortStableFunc(c.Columns, func(x, y column) int {
		return cmp.Or(cmp.Compare(x.Run.Profile, y.Run.Profile), x.Run.Agents-y.Run.Agents, x.Run.Population.ServiceAccounts-y.Run.Population.ServiceAccounts,
			cmp.Compare(x.Run.Authorizer, y.Run.Authorizer))
	})
	slices.SortFunc(c.Variants, variantKey.compare)
	for _, title := range titles {
		first := title(&c.Columns[0].Run)
		if !slices.ContainsFunc(c.Columns, func(col column) bool { return title(&col.Run) != first }) {
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

// curve draws what the variants cost against the number of agents. It is empty unless some variant ran with several.
func (c *Cost) curve(label string, of func(*Variant) (float64, *statistics.Interval)) (string, error) {
	chart := statistics.Chart{
		Label: label + " by number of agents", Height: 340, Legend: true,
		X: statistics.Axis{Label: "agents", Log: true, Room: true}, Y: statistics.Axis{Label: label, Zero: true, Room: true},
	}
	for _, row := range c.Variants {
		curve, agents := statistics.Curve{Name: row.String()}, map[int]bool{}
		for _, col := range c.Columns {
			if v := col.Measured(row); v != nil && !agents[v.Agents] { // of several runs with as many the first
				agents[v.Agents] = true
				y, interval := of(v)
				curve.Points = append(curve.Points, statistics.Point{X: float64(v.Agents), Y: y, Interval: interval})
			}
		}
		if len(agents) > 1 {
			chart.Curves = append(chart.Curves, curve)
		}
	}
	return chart.SVG()
}

// Files are README.md and, where the numbers of agents differ, the curves as SVG files.
func (c *Cost) Files() (map[string][]byte, error) {
	reviews, err := c.curve("access reviews per request", func(v *Variant) (float64, *statistics.Interval) {
		return v.Reviews.PerRequest.Estimate, v.Reviews.interval()
	})
	cpu, err2 := c.curve("CPU of the API server above idle per request in ms", func(v *Variant) (float64, *statistics.Interval) {
		return v.Usage[run.APIServer].PerRequest, nil
	})
	files := map[string][]byte{"reviews.svg": []byte(reviews), "cpu.svg": []byte(cpu)}
	maps.DeleteFunc(files, func(_ string, svg []byte) bool { return len(svg) == 0 })
	readme, err3 := c.Markdown(slices.Sorted(maps.Keys(files))...)
	files["README.md"] = readme
	return files, errors.Join(err, err2, err3)
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

// Markdown has a table for each thing that was measured, with a variant in each row and a run in each column, then
// the comparisons, and whether the runs were sound. plots are the names of SVG files to show, if any.
func (c *Cost) Markdown(plots ...string) ([]byte, error) {
	return markdown("cost", struct {
		*Cost
		Plots []string
	}{c, plots})
}

// queuesText is the mean wait of a request dispatched, in ms, and how many were rejected, over all priority levels.
func queuesText(v *Variant) string {
	sums := map[string]float64{}
	for name, n := range v.FlowControl {
		if !strings.Contains(name, " exempt") { // what measures, not what is measured
			what, _, _ := strings.Cut(name, " ")
			sums[what] += n
		}
	}
	return fmt.Sprintf("%.2f, %g", 1000*sums["waited"]/max(sums["dispatched"], 1), sums["rejected"])
}

// Usage is what one program used for a variant.
type Usage struct {
	// PerRequest is ms of CPU time above idle for each request sent, Idle the part of a processor that the program
	// uses without requests.
	PerRequest float64 `json:"cpuMillisecondsPerRequest"`
	Idle       float64 `json:"idleProcessors"`
	RSS        int64   `json:"rssBytes"` // the most at a block's end
	// Allocated bytes for each request sent, and garbage collections in all blocks.
	Allocated float64 `json:"allocatedBytesPerRequest,omitempty"`
	GCs       int64   `json:"gcs,omitempty"`
	PeakHeap  int64   `json:"peakHeapBytes,omitempty"` // of all blocks
}

func usageOf(blocks []*run.Block) (used map[string]Usage) {
	var sent int64
	var length time.Duration
	for _, b := range blocks {
		sent, length = sent+b.Sent, length+time.Duration(b.Length)
		for name, c := range b.Cost {
			if used == nil {
				used = map[string]Usage{}
			}
			u := used[name]
			u.PerRequest += milliseconds(time.Duration(c.CPU - c.Idle))
			u.Idle += time.Duration(c.Idle).Seconds()
			u.RSS, u.Allocated, u.GCs, u.PeakHeap = max(u.RSS, c.RSS), u.Allocated+float64(c.Allocated), u.GCs+c.GCs, max(u.PeakHeap, c.PeakHeap)
			used[name] = u
		}
	}
	for name, u := range used {
		u.PerRequest, u.Allocated, u.Idle = u.PerRequest/float64(max(sent, 1)), u.Allocated/float64(max(sent, 1)), u.Idle/length.Seconds()
		used[name] = u
	}
	return used
}
