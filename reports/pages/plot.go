package pages

import (
	"html/template"

	"github.com/authzconf/authzconf/reports/statistics"
)

// drawPlot draws a plot, which escapes its texts itself. A plot without values gives an empty drawing.
func drawPlot(p statistics.Plot) (drawing, error) {
	svg, err := p.SVG()
	if err != nil {
		return drawing{}, err
	}
	d := drawing{Title: p.Title, SVG: template.HTML(svg)}
	if p.Chart == nil || p.Chart.Alone {
		return d, nil
	}
	for i, c := range p.Chart.Curves {
		if len(c.Points) > 0 {
			d.Curves = append(d.Curves, curve{c.Name, template.CSS(statistics.Colour(i)), statistics.Dashed(i)})
		}
	}
	return d, nil
}
