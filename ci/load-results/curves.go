package main

import (
	"cmp"
	_ "embed"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/plots"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// conditions are what runs have in common that may be points of one line against the number of agents: all but that number.
type conditions struct {
	profile, authorizer, kubernetes string
	length                          run.Duration
	// population has no number of nodes, and none of accounts where each agent has its own.
	population run.Population
	own        bool
}

// conditions returns those of a run.
func (c column) conditions() conditions {
	p := c.Run.Population
	out := conditions{
		profile:    c.Run.Profile,
		authorizer: c.Run.Authorizer,
		length:     c.length(),
		own:        p.ServiceAccounts == p.Nodes*p.DaemonSets,
	}
	if len(c.Run.Servers) > 0 {
		out.kubernetes = c.Run.Servers[0].GitVersion
	}
	p.Nodes = 0
	if out.own {
		p.ServiceAccounts = 0
	}
	out.population = p
	return out
}

// String returns the name of a line.
func (c conditions) String() string {
	text := c.profile + ", " + c.authorizer
	if c.population.Every > 0 {
		text += ", every " + formatDuration(c.population.Every)
	}
	return text
}

// curve draws the reviews per request against the number of agents. A line has the runs that differ in nothing else; lines
// that are the same are one. It is empty unless a variant ran with several numbers of agents under the same conditions.
func (c *Cost) curve() (string, error) {
	const label = "access reviews per request"
	chart := statistics.Chart{
		Label: label + " by number of agents", Height: 340, Alone: true,
		X: statistics.Axis{Label: "agents", Log: true, Room: true}, Y: statistics.Axis{Label: label, Zero: true, Room: true},
	}
	groups := seq.AppendMissing(nil, seq.Map(c.Columns, column.conditions)...)
	for _, row := range c.Variants {
		for _, group := range groups {
			if points := c.reviewsByAgents(row, group); len(points) > 1 {
				addReviewCurve(&chart, c.nameRow(row, group), group.own, points)
			}
		}
	}
	return chart.SVG()
}

// nameRow returns the name of a variant, with its server if it ran on several, and the conditions if the runs have several.
func (c *Cost) nameRow(row judge.VariantKey, group conditions) string {
	name := row.Variant
	if slices.ContainsFunc(c.Variants, func(other judge.VariantKey) bool { return other.Variant == row.Variant && other != row }) {
		name = row.String()
	}
	several := slices.ContainsFunc(c.Columns, func(col column) bool { return col.conditions().String() != group.String() })
	if several {
		name += " (" + group.String() + ")"
	}
	return name
}

// reviewsByAgents returns the reviews per request of a variant at each number of agents, of the runs under some conditions;
// of several runs with a number of agents those of the first.
func (c *Cost) reviewsByAgents(row judge.VariantKey, group conditions) (points []statistics.Point) {
	known := map[int]bool{}
	for _, col := range c.Columns {
		v := col.Measured(row)
		if v == nil || known[v.Agents] || col.conditions() != group {
			continue
		}
		if v.Reviews.Of == judge.AllBlocks { // of agents that were known and of others, in what proportion the machine decides
			continue
		}
		known[v.Agents] = true
		p := statistics.Point{X: float64(v.Agents), Y: v.Reviews.PerRequest.Estimate}
		if v.Reviews.Bounded {
			p.Interval = &v.Reviews.PerRequest
		}
		points = append(points, p)
	}
	return points
}

// addReviewCurve adds a curve, or its name to a curve that is the same.
func addReviewCurve(chart *statistics.Chart, name string, own bool, points []statistics.Point) {
	curve := statistics.Curve{Name: name, Points: points}
	if own {
		curve.Name += " (own accounts)"
	}
	same := slices.IndexFunc(chart.Curves, func(other statistics.Curve) bool {
		return slices.EqualFunc(other.Points, points, func(p, q statistics.Point) bool { return p.X == q.X && math.Abs(p.Y-q.Y) < 0.005 })
	})
	switch {
	case same < 0:
		chart.Curves = append(chart.Curves, curve)
	case !slices.Contains(strings.Split(chart.Curves[same].Name, ", "), name):
		chart.Curves[same].Name += ", " + curve.Name
	}
}

var slug = strings.NewReplacer(", ", "-", " ", "-", ":", "", "(", "", ")", "")

// perRun draws the differences of each run of which something can be said, and the reviews over time where they came in waves.
func (c *Cost) perRun(files map[string][]byte) error {
	for _, col := range c.Columns {
		differences := plots.Effects(col.Result.Comparisons)
		svg, err := statistics.Plot{Forest: &differences}.SVG()
		if err != nil {
			return err
		}
		files[slug.Replace(col.Title)+"-differences.svg"] = []byte(svg)
		if !col.cameInWaves() {
			continue
		}
		timeline := plots.Timeline(judge.GroupVariants(&col.Run))
		timeline.Label, timeline.Alone = timeline.Label+": "+col.Title, true
		if svg, err = timeline.SVG(); err != nil {
			return err
		}
		files[col.timelineFile()] = []byte(svg)
	}
	return nil
}

// cameInWaves reports whether in some second there were three times as many reviews as on average.
func (c column) cameInWaves() bool {
	return slices.ContainsFunc(c.Result.Variants, func(v judge.Variant) bool { return float64(v.MostReviews) > 3*v.ReviewsPerSecond })
}

// timelineFile returns the name of the plot of the reviews over time.
func (c column) timelineFile() string { return slug.Replace(c.Title) + ".svg" }

// keepsTimeline reports whether a file is the plot over time of a run whose blocks are not there to draw it again.
func (c *Cost) keepsTimeline(name string) bool {
	return slices.ContainsFunc(c.Columns, func(col column) bool {
		hasTimeline := slices.ContainsFunc(col.Run.Blocks, func(b run.Block) bool { return len(b.Timeline) > 0 })
		return !hasTimeline && col.cameInWaves() && name == col.timelineFile()
	})
}

// Files are README.md and the plots, as SVG files. The page shows kept beside them, plots that are there already.
func (c *Cost) Files(kept ...string) (map[string][]byte, error) {
	reviews, err := c.curve()
	files := map[string][]byte{"reviews.svg": []byte(reviews)}
	err = cmp.Or(err, c.perRun(files))
	maps.DeleteFunc(files, func(_ string, svg []byte) bool { return len(svg) == 0 })
	readme, err2 := c.Markdown(slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(kept), maps.Keys(files))))...)
	files["README.md"] = readme
	return files, cmp.Or(err, err2)
}
