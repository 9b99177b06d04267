package pages

import (
	"html/template"

	"github.com/authzconf/authzconf/reports"
)

const productTemplate = `{{range .Text}}
<p class="lead">{{prose .}}</p>{{end}}
{{- range .Tables}}{{template "table" .}}{{end}}
{{- range .Figures}}
<figure>{{with .Title}}<figcaption>{{.}}</figcaption>{{end}}{{.SVG}}{{if gt (len .Curves) 1}}<p class="curves">{{range .Curves}}<span><i style="border-top:3px {{if .Dashed}}dashed{{else}}solid{{end}} {{.Colour}}"></i> {{.Name}}</span>{{end}}</p>{{end}}</figure>{{end}}`

// productSection shows the sections that the product has made.
var productSection = section{name: "product", template: productTemplate, views: viewProduct}

type productView struct {
	reports.Section
	Figures []drawing
}

// drawing is a plot that was drawn.
type drawing struct {
	Title  string
	SVG    template.HTML
	Curves []curve
}

// curve is an entry of a plot's legend.
type curve struct {
	Name   string
	Colour template.CSS
	Dashed bool
}

func viewProduct(p *page) (views []view, err error) {
	for _, s := range p.Sections {
		data := productView{Section: s}
		for _, plot := range s.Plots {
			drawn, err := drawPlot(plot)
			if err != nil {
				return nil, err
			}
			if drawn.SVG != "" {
				data.Figures = append(data.Figures, drawn)
			}
		}
		views = append(views, view{ID: s.ID, Title: s.Title, Data: data})
	}
	return views, nil
}
