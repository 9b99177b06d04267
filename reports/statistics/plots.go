package statistics

import (
	"bytes"
	"cmp"
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
)

// Point is a value of a curve, with its interval if there is one.
type Point struct {
	X        float64   `json:"x"`
	Y        float64   `json:"y"`
	Interval *Interval `json:"interval,omitempty"`
}

// Curve is one line of a chart.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Tick is a mark on an axis.
type Tick struct {
	Value float64 `json:"value"`
	Label string  `json:"label"`
}

// Axis is an axis of a chart.
type Axis struct {
	Label string `json:"label"`
	// Log makes the axis logarithmic, so that all values must be above 0. Zero makes it begin at 0.
	Log  bool `json:"log,omitempty"`
	Zero bool `json:"zero,omitempty"`
	// Room keeps the highest values away from the frame.
	Room bool `json:"room,omitempty"`
	// Ticks replace the usual ticks, if they are given.
	Ticks []Tick `json:"ticks,omitempty"`
}

// Chart draws curves over two axes.
type Chart struct {
	Label string `json:"label"`
	X     Axis   `json:"x"`
	Y     Axis   `json:"y"`
	// Height is in points.
	Height float64 `json:"height"`
	// Alone puts the label above the chart and the names of the curves below it. It is for a chart that no page
	// explains.
	Alone  bool    `json:"alone,omitempty"`
	Curves []Curve `json:"curves"`
}

// Plot is one figure of a report as data: a chart or a forest plot.
type Plot struct {
	Title  string      `json:"title"`
	Chart  *Chart      `json:"chart,omitempty"`
	Forest *ForestPlot `json:"forest,omitempty"`
}

// ForestPlot has one interval in each row, one below the other, relative to 0.
type ForestPlot struct {
	Label string `json:"label"`
	// Axis is the label of the horizontal axis.
	Axis string `json:"axis"`
	Rows []Row  `json:"rows"`
}

// SVG returns the plot as an SVG element, or "" if there is nothing to draw.
func (p Plot) SVG() (string, error) {
	switch {
	case p.Chart != nil:
		return p.Chart.SVG()
	case p.Forest != nil:
		return Forest(p.Forest.Label, p.Forest.Axis, p.Forest.Rows)
	}
	return "", nil
}

// SVG returns the chart as an SVG element with its namespace, for a file of its own or as part of a page, or "" if no
// curve has a point. The position of a curve decides its colour.
func (c Chart) SVG() (string, error) {
	p := newPlot()
	c.X.set(&p.X)
	c.Y.set(&p.Y)
	if c.Alone {
		p.Title.Text = c.Label
	}
	isDrawn := false
	legend := plot.NewLegend()
	legend.Left, legend.TextStyle.Font.Variant, legend.Padding = true, "Sans", vg.Points(2)
	for i, curve := range c.Curves {
		if len(curve.Points) == 0 {
			continue
		}
		isDrawn = true
		if err := addCurve(p, i, curve.Points); err != nil {
			return "", err
		}
		if c.Alone {
			legend.Add(curve.Name, &plotter.Line{LineStyle: lineStyle(i)})
		}
	}
	if !isDrawn {
		return "", nil
	}
	c.X.makeRoom(&p.X)
	c.Y.makeRoom(&p.Y)
	return svg(p, c.Label, c.Height, &legend), nil
}

func (a Axis) set(axis *plot.Axis) {
	axis.Label.Text = a.Label
	axis.Tick.Marker = roundTicks{}
	if a.Log {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, logTicks{}
	}
	if a.Zero {
		axis.Min = 0
	}
	if a.Ticks != nil {
		var ticks plot.ConstantTicks
		for _, tick := range a.Ticks {
			ticks = append(ticks, plot.Tick{Value: tick.Value, Label: tick.Label})
		}
		slices.SortFunc(ticks, func(x, y plot.Tick) int { return cmp.Compare(x.Value, y.Value) })
		axis.Tick.Marker = ticks
	}
}

func (a Axis) makeRoom(axis *plot.Axis) {
	switch {
	case a.Room && a.Log:
		axis.Max *= 1.15
	case a.Room:
		axis.Max += 0.06 * (axis.Max - axis.Min)
	}
}

// errorBars are intervals around values. The library expects distances from the value.
type errorBars struct {
	plotter.XYs
	plotter.XErrors
	plotter.YErrors
}

func addCurve(p *plot.Plot, i int, points []Point) error {
	var line plotter.XYs
	var bars errorBars
	for _, at := range points {
		line = append(line, plotter.XY{X: at.X, Y: at.Y})
		if b := at.Interval; b != nil {
			bars.XYs = append(bars.XYs, line[len(line)-1])
			bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{b.Low - at.Y, b.High - at.Y})
		}
	}
	curve, err := plotter.NewLine(line)
	if err != nil {
		return err
	}
	curve.LineStyle = lineStyle(i)
	p.Add(curve)
	if len(bars.XYs) == 0 {
		return nil
	}
	intervals, err := plotter.NewYErrorBars(bars)
	if err != nil {
		return err
	}
	intervals.Color = palette[i%len(palette)]
	p.Add(intervals)
	return nil
}

// Row is one row of Forest: an interval around its estimate, its values, and the band that it should be within, if any.
type Row struct {
	Name     string    `json:"name"`
	Interval Interval  `json:"interval"`
	Values   []float64 `json:"values,omitempty"`
	Band     *Interval `json:"band,omitempty"`
}

// Forest draws intervals one below the other, relative to 0, as an SVG element. It returns "" if there are none.
func Forest(label, axis string, rows []Row) (string, error) {
	if len(rows) == 0 {
		return "", nil
	}
	p := newPlot()
	p.X.Label.Text = axis
	var names []string
	var estimates, values plotter.XYs
	var bars errorBars
	for i, r := range slices.Backward(rows) {
		y := float64(len(rows) - 1 - i)
		names = append(names, r.Name+strings.Repeat(" ", 1+len(r.Name)/5)) // the letters of the reader's font may be wider
		if r.Band != nil {
			band, err := plotter.NewPolygon(
				plotter.XYs{
					{X: r.Band.Low, Y: y - 0.35},
					{X: r.Band.High, Y: y - 0.35},
					{X: r.Band.High, Y: y + 0.35},
					{X: r.Band.Low, Y: y + 0.35},
				},
			)
			if err != nil {
				return "", err
			}
			band.Color, band.LineStyle.Width = color.RGBA{204, 232, 222, 255}, 0
			p.Add(band)
		}
		at := plotter.XY{X: r.Interval.Estimate, Y: y}
		estimates, bars.XYs = append(estimates, at), append(bars.XYs, at)
		bars.XErrors = append(bars.XErrors, struct{ Low, High float64 }{r.Interval.Low - at.X, r.Interval.High - at.X})
		for _, v := range r.Values {
			values = append(values, plotter.XY{X: v, Y: y - 0.2})
		}
	}
	zero, err := plotter.NewLine(plotter.XYs{{X: 0, Y: -0.6}, {X: 0, Y: float64(len(rows)) - 0.4}})
	if err != nil {
		return "", err
	}
	intervals, err := plotter.NewXErrorBars(bars)
	if err != nil {
		return "", err
	}
	intervals.Width, intervals.Color = vg.Points(2), palette[0]
	p.Add(zero, intervals)
	for _, dots := range []struct {
		plotter.XYs
		draw.GlyphStyle
	}{
		{values, draw.GlyphStyle{Color: palette[6], Radius: vg.Points(2), Shape: draw.RingGlyph{}}},
		{estimates, draw.GlyphStyle{Color: palette[0], Radius: vg.Points(4), Shape: draw.CircleGlyph{}}},
	} {
		scatter, err := plotter.NewScatter(dots.XYs)
		if err != nil {
			return "", err
		}
		scatter.GlyphStyle = dots.GlyphStyle
		p.Add(scatter)
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
	p.X.Tick.Marker = roundTicks{}
	legend := plot.NewLegend()
	return svg(p, label, float64(60+26*len(rows)), &legend), nil
}

// palette are colours that people with colour blindness can tell apart (Okabe and Ito). After the last of them, lines
// are dashed.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{230, 159, 0, 255}, {86, 180, 233, 255}, {70, 70, 70, 255},
}

// Colour returns the colour of curve i, for a legend outside of the chart.
func Colour(i int) string {
	c := palette[i%len(palette)]
	return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
}

// Dashed reports whether curve i is.
func Dashed(i int) bool { return i >= len(palette) }

func lineStyle(i int) draw.LineStyle {
	style := draw.LineStyle{Color: palette[i%len(palette)], Width: vg.Points(1.6)}
	if n := i / len(palette); n > 0 {
		style.Dashes = []vg.Length{vg.Points(float64(6 / n)), vg.Points(3)}
	}
	return style
}

// newPlot returns a plot with letters without serifs, as the page has them, and a grid behind everything.
func newPlot() *plot.Plot {
	p := plot.New()
	p.Title.TextStyle.Font.Variant, p.Title.TextStyle.Font.Size, p.Title.Padding = "Sans", 13, vg.Points(8)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Variant, axis.Tick.Label.Font.Variant = "Sans", "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	return p
}

// roundTicks are about six ticks, at multiples of 1, 2 or 5 times a power of ten.
type roundTicks struct{}

func (roundTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/5)))
	for _, factor := range []float64{5, 2} {
		if (high-low)/(factor*step) >= 4 {
			step *= factor
			break
		}
	}
	for i := math.Floor(low/step + 1 - 1e-9); i*step <= high*(1+1e-9); i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 6, 64)})
	}
	return ticks
}

// logTicks are at 1, 2 and 5 times the powers of ten, or at all multiples of these if the range is smaller than a
// power.
type logTicks struct{}

func (logTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			v := digit * power
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if high < 10*low || slices.Contains([]float64{1, 2, 5}, digit) {
				t.Label = strconv.FormatFloat(v, 'g', 6, 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// svg draws a plot, with its legend below, as an element for an HTML page. Its text is escaped by vgsvg.
func svg(p *plot.Plot, label string, height float64, legend *plot.Legend) string {
	legendHeight := legend.Rectangle(draw.Canvas{}).Size().Y
	c := vgsvg.New(760, vg.Points(height)+legendHeight)
	all := draw.Crop(draw.New(c), vg.Points(4), -vg.Points(14), vg.Points(4), -vg.Points(6))
	p.Draw(draw.Crop(all, 0, 0, legendHeight, 0))
	legend.Draw(draw.Crop(all, vg.Points(40), 0, 0, 0))
	var b bytes.Buffer
	_, _ = c.WriteTo(&b) // writing to a bytes.Buffer never fails
	// Only the element is returned, because a page has one prologue of its own.
	_, element, _ := strings.Cut(b.String(), "<svg")
	return `<svg role="img" aria-label="` + html.EscapeString(label) + `"` + element
}
