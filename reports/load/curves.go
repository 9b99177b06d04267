package load

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Curve is one line of a plot.
type Curve struct {
	Name string
	X, Y []float64
}

// Curves draws lines over an axis that is logarithmic, as is the other: all values
// have to be above 0. The result is an SVG element with its namespace, a file of its own
// or part of a page.
func Curves(x, y string, curves []Curve) (string, error) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, logTicks{}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Variant = "Sans"
	for i, c := range curves {
		var line points
		for j := range c.X {
			line.add(c.X[j], c.Y[j], nil, false)
		}
		if err := addLine(p, i, &line); err != nil {
			return "", err
		}
		p.Legend.Add(c.Name, &plotter.Line{LineStyle: lineStyle(i)})
	}
	return svg(p, y+" by "+x, vg.Points(360)), nil
}
