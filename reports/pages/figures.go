package pages

import (
	"math"
	"strconv"
)

const figuresTemplate = `<dl class="figures">{{range .}}
<div><dt>{{.Name}}</dt><dd><b>{{.Value}}</b> {{.Unit}}</dd></div>{{end}}
</dl>`

// figuresSection shows single numbers.
var figuresSection = section{name: "figures", template: figuresTemplate, views: viewFigures}

type figureView struct{ Name, Value, Unit string }

func viewFigures(p *page) ([]view, error) {
	if len(p.Figures) == 0 {
		return nil, nil
	}
	var data []figureView
	for _, f := range p.Figures {
		data = append(data, figureView{f.Name, formatNumber(f.Value), f.Unit})
	}
	return showView(view{ID: "figures", Title: "Figures", Data: data})
}

// formatNumber returns a number with the digits that people read: all digits of a count, and about four of other
// numbers.
func formatNumber(n float64) string {
	size := math.Abs(n)
	digits := 1
	switch {
	case n == math.Trunc(n), size >= 10_000:
		digits = 0
	case size < 1:
		digits = 4
	case size < 100:
		digits = 2
	}
	return strconv.FormatFloat(n, 'f', digits, 64)
}
