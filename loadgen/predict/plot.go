package predict

import "github.com/authzconf/authzconf/reports/statistics"

// mostPoints is the largest number of points in a curve. More would not be visible.
const mostPoints = 600

// Plot returns the checks in each second after the restart of an API server, with a curve for each situation. It has no
// curves if nothing was simulated.
func (p *Prediction) Plot() statistics.Plot {
	chart := statistics.Chart{
		Label: "checks after the restart of an API server", Height: 300, Alone: true,
		X: statistics.Axis{Label: "seconds since the restart"}, Y: statistics.Axis{Label: "checks per second", Zero: true, Room: true},
	}
	for _, o := range p.Situations {
		curve := statistics.Curve{Name: o.Name}
		for i, second := range o.Seconds[:min(mostPoints, len(o.Seconds))] {
			curve.Points = append(curve.Points, statistics.Point{X: float64(i), Y: float64(second.Checks)})
		}
		chart.Curves = append(chart.Curves, curve)
	}
	return statistics.Plot{Title: chart.Label, Chart: &chart}
}
