package load

import (
	"math"
	"slices"
	"strconv"

	"github.com/authzconf/authzconf/reports/load/histogram"
	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// interval is that of the mean, if there is one.
func (r ReviewRate) interval() *statistics.Interval {
	if r.Bounded {
		return &r.PerRequest
	}
	return nil
}

// plotEffects shows the changes of all comparisons in percent, p50 before p99, beside their margins.
func plotEffects(comparisons []Comparison) (string, error) {
	percents := func(part float64) float64 { return 100 * part }
	var rows []statistics.Row
	for _, c := range comparisons {
		for _, e := range []namedEffect{{"p50", c.P50}, {"p99", c.P99}} {
			if !e.Measured {
				continue
			}
			row := statistics.Row{Name: c.Name + ", " + e.Name, Interval: e.Ninety.Map(percents)}
			for _, start := range e.Starts {
				row.Values = append(row.Values, 100*start)
			}
			if e.Margin > 0 {
				// By logarithms: to be slower by a factor is as much as to be faster by it.
				row.Band = &statistics.Interval{Low: 100 * (1/(1+e.Margin) - 1), High: 100 * e.Margin}
			}
			rows = append(rows, row)
		}
	}
	return statistics.Forest("how much longer B takes than A", "how much longer B takes than A, in percent", rows)
}

// plotReviews shows reviews per request by variant, beside the bounds of the prediction.
func plotReviews(variants []Variant) (string, error) {
	var rows []statistics.Row
	for _, v := range variants {
		row := statistics.Row{Name: v.Name, Interval: v.Reviews.PerRequest}
		if p := v.Reviews.Predicted; p != nil {
			row.Band = &statistics.Interval{Low: p.Low - bandRoom, High: p.High + bandRoom}
		}
		rows = append(rows, row)
	}
	return statistics.Forest("access reviews per request by variant", "access reviews per request", rows)
}

// bandRoom makes a prediction of one figure visible.
const bandRoom = 0.02

// shownQuantiles are the points of a latency curve.
var shownQuantiles = []float64{0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999}

// nines stretches the upper end of a quantile, which is what load is about: 0.9 is 1, 0.99 is 2.
func nines(q float64) float64 { return -math.Log10(1 - q) }

// plotLatencies shows the latency curves by variant, with the bounds of quantiles.
func plotLatencies(groups []variantBlocks) (string, error) {
	chart := statistics.Chart{
		Label: "latency by percentile and variant", Height: 340,
		X: statistics.Axis{Label: "percentile", Room: true, Ticks: map[float64]string{}}, Y: statistics.Axis{Label: "latency in ms", Log: true},
	}
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 0.9999} {
		chart.X.Ticks[nines(q)] = "p" + strconv.FormatFloat(100*q, 'g', 6, 64)
	}
	for _, g := range groups {
		h := merged(g.blocks, latencyOf)
		curve := statistics.Curve{Name: g.name}
		for _, q := range shownQuantiles {
			bound := quantileBound(&h, q)
			// A quantile needs some durations beyond it, and a logarithm a value above 0.
			if bound.Milliseconds <= 0 || float64(h.Count())*(1-q) < 1 {
				continue
			}
			at := statistics.Point{X: nines(q), Y: bound.Milliseconds}
			if bound.Bounded && bound.Low > 0 && slices.Contains([]float64{0.5, 0.9, 0.99, 0.999}, q) {
				at.Interval = &statistics.Interval{Low: bound.Low, High: bound.High}
			}
			curve.Points = append(curve.Points, at)
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return chart.SVG()
}

func latencyOf(b *run.Block) *histogram.Histogram { return &b.Latency }

// plotTimeline shows the reviews in each second of a block, as the mean of the variant's blocks.
func plotTimeline(groups []variantBlocks) (string, error) {
	chart := statistics.Chart{
		Label: "access reviews over time by variant", Height: 300,
		X: statistics.Axis{Label: "seconds since the block began"}, Y: statistics.Axis{Label: "access reviews per second", Zero: true, Room: true},
	}
	for _, g := range groups {
		curve := statistics.Curve{Name: g.name}
		for second := 0; ; second++ {
			var sum, blocks float64
			for _, b := range g.blocks {
				if second < len(b.Timeline) {
					sum += float64(b.Timeline[second].Reviews)
					blocks++
				}
			}
			if blocks == 0 {
				break
			}
			curve.Points = append(curve.Points, statistics.Point{X: float64(second), Y: sum / blocks})
		}
		if len(curve.Points) < 2 {
			curve.Points = nil // not a line
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return chart.SVG()
}
