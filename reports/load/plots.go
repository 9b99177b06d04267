package load

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/authzconf/authzconf/reports/load/run"
	"github.com/authzconf/authzconf/reports/statistics"
)

// Colours that people with colour blindness can tell apart (Okabe and Ito); after
// the last of them lines are dashed.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{230, 159, 0, 255}, {86, 180, 233, 255}, {70, 70, 70, 255},
}

func lineStyle(i int) draw.LineStyle {
	style := draw.LineStyle{Color: palette[i%len(palette)], Width: vg.Points(1.6)}
	if n := i / len(palette); n > 0 {
		style.Dashes = []vg.Length{vg.Points(float64(6 / n)), vg.Points(3)}
	}
	return style
}

func hexColour(i int) string {
	c := palette[i%len(palette)]
	return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
}

// newPlot has letters without serifs, as the page does.
func newPlot() *plot.Plot {
	p := plot.New()
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Variant, axis.Tick.Label.Font.Variant = "Sans", "Sans"
	}
	p.Add(faintGrid()) // first, so that it is behind everything
	return p
}

// headroom keeps the highest values off the frame.
func headroom(axis *plot.Axis) { axis.Max += 0.06 * (axis.Max - axis.Min) }

// logTicks are at 1, 2 and 5 times the powers of ten, or at all their multiples
// where the range is less than a power.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			v := digit * power
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if high < 10*low || digit == 1 || digit == 2 || digit == 5 {
				t.Label = strconv.FormatFloat(v, 'g', 6, 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// svg draws a plot as an element for an HTML page. Its text is escaped by vgsvg.
func svg(p *plot.Plot, label string, height vg.Length) string {
	c := vgsvg.New(760, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	_, _ = c.WriteTo(&b) // a bytes.Buffer takes everything
	// The element alone: a page has one prologue, its own.
	_, element, _ := strings.Cut(b.String(), "<svg")
	return `<svg role="img" aria-label="` + html.EscapeString(label) + `"` + element
}

func faintGrid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = color.Gray{225}, color.Gray{225}
	return g
}

// points are values, and the intervals around some of them.
type points struct {
	plotter.XYs
	bars bars
}

type bars struct {
	plotter.XYs
	plotter.XErrors
	plotter.YErrors
}

// add adds a value, with its interval unless that is nil. The interval is along
// the x axis if it is horizontal.
func (p *points) add(x, y float64, interval *statistics.Interval, horizontal bool) {
	at := plotter.XY{X: x, Y: y}
	p.XYs = append(p.XYs, at)
	if interval == nil {
		return
	}
	p.bars.XYs = append(p.bars.XYs, at)
	// The library takes distances from the value.
	if horizontal {
		p.bars.XErrors = append(p.bars.XErrors, struct{ Low, High float64 }{interval.Low - x, interval.High - x})
	} else {
		p.bars.YErrors = append(p.bars.YErrors, struct{ Low, High float64 }{interval.Low - y, interval.High - y})
	}
}

// plotReviews shows reviews per request by variant, with intervals, and the bounds
// of the prediction as crosses.
func plotReviews(variants []Variant) (string, error) {
	if len(variants) == 0 {
		return "", nil
	}
	p := newPlot()
	p.X.Label.Text, p.X.Min = "access reviews per request", 0
	var names []string
	means, predicted := &points{}, plotter.XYs{}
	// The first variant is at the top.
	for i, a := range slices.Backward(variants) {
		y := float64(len(variants) - 1 - i)
		// The reader's letters may be wider than those that the space is measured by.
		names = append(names, a.Name+strings.Repeat(" ", 1+len(a.Name)/5))
		var interval *statistics.Interval
		if a.Reviews.Bounded {
			interval = &a.Reviews.PerRequest
		}
		means.add(a.Reviews.PerRequest.Estimate, y, interval, true)
		if w := a.Reviews.Predicted; w != nil {
			predicted = append(predicted, plotter.XY{X: w.Cold, Y: y}, plotter.XY{X: w.Warm, Y: y})
		}
		bar, err := plotter.NewBarChart(plotter.Values{a.Reviews.PerRequest.Estimate}, vg.Points(14))
		if err != nil {
			return "", err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width, bar.Color = true, y, 0, palette[i%len(palette)]
		p.Add(bar)
	}
	if len(means.bars.XYs) > 0 {
		intervals, err := plotter.NewXErrorBars(means.bars)
		if err != nil {
			return "", err
		}
		p.Add(intervals)
	}
	if len(predicted) > 0 {
		crosses, err := plotter.NewScatter(predicted)
		if err != nil {
			return "", err
		}
		crosses.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: vg.Points(4), Shape: draw.CrossGlyph{}}
		p.Add(crosses)
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(variants))-0.4
	headroom(&p.X)
	return svg(p, "access reviews per request by variant", vg.Points(float64(60+26*len(variants)))), nil
}

// shownQuantiles are the points of a latency curve.
var shownQuantiles = []float64{0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999}

// nines stretches the upper end of a quantile, which is what load is about: 0.9
// is 1, 0.99 is 2.
func nines(q float64) float64 { return -math.Log10(1 - q) }

// plotLatencies shows the latency curves by variant, with the bounds of quantiles.
func plotLatencies(groups []variantBlocks) (string, error) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = "percentile", "latency in ms"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, logTicks{}
	var ticks plot.ConstantTicks
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 0.9999} {
		ticks = append(ticks, plot.Tick{Value: nines(q), Label: "p" + strconv.FormatFloat(100*q, 'g', 6, 64)})
	}
	p.X.Tick.Marker = ticks
	drawn := 0
	for i, g := range groups {
		h := mergedLatency(g.blocks)
		curve := &points{}
		for _, q := range shownQuantiles {
			bound := quantileBound(&h, q)
			// A quantile needs some durations beyond it, and a logarithm a value above 0.
			if bound.Milliseconds <= 0 || float64(h.Count())*(1-q) < 1 {
				continue
			}
			var interval *statistics.Interval
			if bound.Bounded && bound.Low > 0 && slices.Contains([]float64{0.5, 0.9, 0.99, 0.999}, q) {
				interval = &statistics.Interval{Low: bound.Low, High: bound.High}
			}
			curve.add(nines(q), bound.Milliseconds, interval, false)
		}
		if len(curve.XYs) == 0 {
			continue
		}
		drawn++
		if err := addLine(p, i, curve); err != nil {
			return "", err
		}
	}
	if drawn == 0 {
		return "", nil
	}
	headroom(&p.X)
	return svg(p, "latency by percentile and variant", 340), nil
}

func addLine(p *plot.Plot, i int, curve *points) error {
	line, err := plotter.NewLine(curve.XYs)
	if err != nil {
		return err
	}
	line.LineStyle = lineStyle(i)
	p.Add(line)
	if len(curve.bars.XYs) > 0 {
		intervals, err := plotter.NewYErrorBars(curve.bars)
		if err != nil {
			return err
		}
		intervals.Color = palette[i%len(palette)]
		p.Add(intervals)
	}
	return nil
}

// plotTimeline shows the reviews in each second of a block, as the mean of the
// variant's blocks.
func plotTimeline(groups []variantBlocks) (string, error) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = "seconds since the block began", "access reviews per second"
	p.Y.Min = 0
	drawn := 0
	for i, g := range groups {
		curve := &points{}
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
			curve.XYs = append(curve.XYs, plotter.XY{X: float64(second), Y: sum / blocks})
		}
		if len(curve.XYs) < 2 {
			continue
		}
		drawn++
		if err := addLine(p, i, curve); err != nil {
			return "", err
		}
	}
	if drawn == 0 {
		return "", nil
	}
	headroom(&p.Y)
	return svg(p, "access reviews over time by variant", 300), nil
}

// curveOf is one variant on one server over the number of agents.
type curveOf struct{ variant, server string }

// CostPlots draw cost against the number of agents, by variant and server: reviews
// per request, and CPU time of the server per request. The results may be of
// several runs. Both are empty unless some variant ran with several numbers.
func CostPlots(results ...*Result) (reviews, cpu string, names []string, err error) {
	byCurve := map[curveOf][]Variant{}
	var order []curveOf
	for _, r := range results {
		for _, a := range r.Variants {
			c := curveOf{a.Variant, a.Server}
			if byCurve[c] == nil {
				order = append(order, c)
			}
			byCurve[c] = append(byCurve[c], a)
		}
	}
	order = slices.DeleteFunc(order, func(c curveOf) bool {
		return !slices.ContainsFunc(byCurve[c], func(a Variant) bool { return a.Agents != byCurve[c][0].Agents })
	})
	if len(order) == 0 {
		return "", "", nil, nil
	}
	for _, c := range order {
		slices.SortStableFunc(byCurve[c], func(x, y Variant) int { return x.Agents - y.Agents })
		names = append(names, c.variant+" on "+c.server)
	}
	draw := func(label string, add func(*points, float64, Variant)) (string, error) {
		p := newPlot()
		p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "agents", label, 0
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{}
		for i, c := range order {
			curve := &points{}
			for _, a := range byCurve[c] {
				if a.Agents > 0 {
					add(curve, float64(a.Agents), a)
				}
			}
			if len(curve.XYs) == 0 {
				continue
			}
			if err := addLine(p, i, curve); err != nil {
				return "", err
			}
		}
		headroom(&p.Y)
		p.X.Max *= 1.15 // The scale is logarithmic.
		return svg(p, label+" by number of agents", 300), nil
	}
	reviews, err = draw("access reviews per request", func(p *points, x float64, a Variant) {
		var interval *statistics.Interval
		if a.Reviews.Bounded {
			interval = &a.Reviews.PerRequest
		}
		p.add(x, a.Reviews.PerRequest.Estimate, interval, false)
	})
	if err != nil {
		return "", "", nil, err
	}
	cpu, err = draw("server CPU per request in ms", func(p *points, x float64, a Variant) { p.add(x, a.ServerCPU, nil, false) })
	return reviews, cpu, names, err
}

// plots are those of the page of a run.
type plots struct{ Reviews, Latencies, Timeline, CostReviews, CostCPU string }

func drawPlots(r *run.Run, result *Result) (p plots, costNames []string, err error) {
	groups := groupVariants(r)
	if p.Reviews, err = plotReviews(result.Variants); err != nil {
		return p, nil, err
	}
	if p.Latencies, err = plotLatencies(groups); err != nil {
		return p, nil, err
	}
	if p.Timeline, err = plotTimeline(groups); err != nil {
		return p, nil, err
	}
	p.CostReviews, p.CostCPU, costNames, err = CostPlots(result)
	return p, costNames, err
}
