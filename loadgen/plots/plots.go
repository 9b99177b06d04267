// Package plots makes the plots of a storm, as data.
package plots

import (
	"math"
	"slices"
	"strconv"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// Effects shows the changes of all comparisons in percent, p50 before p99, with their margins.
func Effects(comparisons []judge.Comparison) statistics.ForestPlot {
	f := statistics.ForestPlot{Label: "how much longer B takes than A", Axis: "how much longer B takes than A, in percent"}
	for _, c := range comparisons {
		f.Rows = append(f.Rows, effectRow(c.Name+", p50", c.P50)...)
		f.Rows = append(f.Rows, effectRow(c.Name+", p99", c.P99)...)
	}
	return f
}

// effectRow returns the row of an effect, or none if it was not measured.
func effectRow(name string, e judge.Effect) []statistics.Row {
	if !e.Measured {
		return nil
	}
	inPercent := func(part float64) float64 { return 100 * part }
	row := statistics.Row{Name: name, Interval: e.Ninety.Map(inPercent), Values: seq.Map(e.Starts, inPercent)}
	if e.Margin > 0 {
		// By logarithms, being slower by a factor is as much as being faster by it.
		row.Band = &statistics.Interval{Low: 100 * (1/(1+e.Margin) - 1), High: 100 * e.Margin}
	}
	return []statistics.Row{row}
}

// bandRoom makes a prediction of one figure visible.
const bandRoom = 0.02

// Reviews shows the access reviews per request of each variant, with the prediction.
func Reviews(variants []judge.Variant) statistics.ForestPlot {
	f := statistics.ForestPlot{Label: "access reviews per request by variant", Axis: "access reviews per request"}
	for _, v := range variants {
		row := statistics.Row{Name: v.Name, Interval: v.Reviews.PerRequest}
		if p := v.Reviews.Predicted; p != nil {
			row.Band = &statistics.Interval{Low: p.Low - bandRoom, High: p.High + bandRoom}
		}
		f.Rows = append(f.Rows, row)
	}
	return f
}

// These are the quantiles of a latency curve, those with a mark on the axis, and those with bounds.
var (
	shownQuantiles   = []float64{0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999}
	markedQuantiles  = []float64{0.01, 0.5, 0.9, 0.99, 0.999, 0.9999}
	boundedQuantiles = []float64{0.5, 0.9, 0.99, 0.999}
)

// nines stretches the upper end of a quantile, which is what load is about: 0.9 becomes 1, and 0.99 becomes 2.
func nines(q float64) float64 { return -math.Log10(1 - q) }

// Latencies shows the latency curves by variant, with the bounds of quantiles.
func Latencies(groups []judge.VariantBlocks) statistics.Chart {
	chart := statistics.Chart{
		Label: "latency by percentile and variant", Height: 340,
		X: statistics.Axis{Label: "percentile", Room: true}, Y: statistics.Axis{Label: "latency in ms", Log: true},
	}
	for _, q := range markedQuantiles {
		chart.X.Ticks = append(chart.X.Ticks, statistics.Tick{Value: nines(q), Label: "p" + strconv.FormatFloat(100*q, 'g', 6, 64)})
	}
	for _, g := range groups {
		h := judge.MergeHistograms(g.Blocks, func(b *run.Block) *histogram.Histogram { return &b.Latency })
		chart.Curves = append(chart.Curves, statistics.Curve{Name: g.Name, Points: latencyPoints(&h)})
	}
	return chart
}

func latencyPoints(h *histogram.Histogram) (points []statistics.Point) {
	for _, q := range shownQuantiles {
		bound := judge.BoundQuantile(h, q)
		// A quantile needs some durations above it, and a logarithm needs a value above 0.
		if bound.Milliseconds <= 0 || float64(h.Count())*(1-q) < 1 {
			continue
		}
		p := statistics.Point{X: nines(q), Y: bound.Milliseconds}
		hasBounds := bound.Bounded && bound.Low > 0
		if hasBounds && slices.Contains(boundedQuantiles, q) {
			p.Interval = &statistics.Interval{Low: bound.Low, High: bound.High}
		}
		points = append(points, p)
	}
	return points
}

// Timeline shows the reviews in each second of a block, as the mean of the variant's blocks.
func Timeline(groups []judge.VariantBlocks) statistics.Chart {
	chart := statistics.Chart{
		Label:  "access reviews over time by variant",
		Height: 300,
		X:      statistics.Axis{Label: "seconds since the block began"},
		Y:      statistics.Axis{Label: "access reviews per second", Zero: true, Room: true},
	}
	for _, g := range groups {
		curve := statistics.Curve{Name: g.Name, Points: timelinePoints(g.Blocks)}
		if len(curve.Points) < 2 {
			curve.Points = nil // not a line
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return chart
}

func timelinePoints(blocks []*run.Block) (points []statistics.Point) {
	for second := 0; ; second++ {
		var sum, n float64
		for _, b := range blocks {
			if second < len(b.Timeline) {
				sum += float64(b.Timeline[second].Reviews)
				n++
			}
		}
		if n == 0 {
			return points
		}
		points = append(points, statistics.Point{X: float64(second), Y: sum / n})
	}
}
