package main

import (
	"cmp"
	_ "embed"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/plots"
	"github.com/authzconf/authzconf/reports/statistics"
)

// curve draws the reviews per request against the number of agents, with shared and with own ServiceAccounts; what is the
// same is one curve. It is empty unless some variant ran with several numbers, of one profile.
func (c *Cost) curve() (string, error) {
	const label = "access reviews per request"
	chart := statistics.Chart{
		Label: label + " by number of agents, in the steady state", Height: 340, Alone: true,
		X: statistics.Axis{Label: "agents", Log: true, Room: true}, Y: statistics.Axis{Label: label, Zero: true, Room: true},
	}
	if c.base(0) != c.base(len(c.Columns)-1) { // columns are in order of profiles
		return chart.SVG()
	}
	for _, row := range c.Variants {
		for _, own := range []bool{false, true} {
			if points := c.reviewsByAgents(row, own); len(points) > 1 {
				addReviewCurve(&chart, c.nameRow(row), own, points)
			}
		}
	}
	return chart.SVG()
}

// nameRow returns the name of a variant, with its server if it ran on several.
func (c *Cost) nameRow(row judge.VariantKey) string {
	if slices.ContainsFunc(c.Variants, func(other judge.VariantKey) bool { return other.Variant == row.Variant && other != row }) {
		return row.String()
	}
	return row.Variant
}

// reviewsByAgents returns the reviews per request of a variant at each number of agents, with their own ServiceAccounts or
// with a shared one; of several runs with a number of agents those of the first.
func (c *Cost) reviewsByAgents(row judge.VariantKey, own bool) (points []statistics.Point) {
	known := map[int]bool{}
	for _, col := range c.Columns {
		v := col.Measured(row)
		if v == nil || known[v.Agents] || strings.HasSuffix(col.Title, " ServiceAccounts") != own {
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

// perRun draws the differences of each run of which something can be said, and the reviews over time where they came in waves:
// where in some second there were three times as many as on average.
func (c *Cost) perRun(files map[string][]byte) error {
	for _, col := range c.Columns {
		differences := plots.Effects(col.Result.Comparisons)
		svg, err := statistics.Plot{Forest: &differences}.SVG()
		if err != nil {
			return err
		}
		files[slug.Replace(col.Title)+"-differences.svg"] = []byte(svg)
		if !slices.ContainsFunc(col.Result.Variants, func(v judge.Variant) bool { return float64(v.MostReviews) > 3*v.ReviewsPerSecond }) {
			continue
		}
		timeline := plots.Timeline(judge.GroupVariants(&col.Run))
		timeline.Label, timeline.Alone = timeline.Label+": "+col.Title, true
		if svg, err = timeline.SVG(); err != nil {
			return err
		}
		files[slug.Replace(col.Title)+".svg"] = []byte(svg)
	}
	return nil
}

// Files are README.md and the plots, as SVG files.
func (c *Cost) Files() (map[string][]byte, error) {
	reviews, err := c.curve()
	files := map[string][]byte{"reviews.svg": []byte(reviews)}
	err = cmp.Or(err, c.perRun(files))
	maps.DeleteFunc(files, func(_ string, svg []byte) bool { return len(svg) == 0 })
	readme, err2 := c.Markdown(slices.Sorted(maps.Keys(files))...)
	files["README.md"] = readme
	return files, cmp.Or(err, err2)
}
