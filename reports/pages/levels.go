package pages

import (
	"fmt"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

const levelsTemplate = `<div class="scroll"><table class="levels">
<thead><tr><th scope="col">Group</th>{{range .Levels}}<th scope="col">{{if $.Named}}{{.}}{{else}}Verdicts{{end}}</th>{{end}}{{if .Times}}<th scope="col" class="n">Ready</th><th scope="col" class="n">Took</th>{{end}}</tr></thead>
<tbody>{{$times := .Times}}{{range .Rows}}
<tr><th scope="row">{{.Name}}</th>{{range .Cells}}<td>{{if .}}<div class="bar" aria-hidden="true">{{range .}}{{if ne .Class "na"}}<i class="{{.Class}}" style="flex:{{.Count}}"></i>{{end}}{{end}}</div>{{template "tiles" .}}{{else}}<span class="mute">none</span>{{end}}</td>{{end}}{{if $times}}<td class="n">{{.Ready}}</td><td class="n">{{.Took}}</td>{{end}}</tr>{{end}}
</tbody></table></div>`

// levelsSection shows the verdicts by group and level.
var levelsSection = section{name: "levels", template: levelsTemplate, views: viewLevels}

type levelsView struct {
	Levels []scenarios.Level
	// Named is true if cases state their levels. Otherwise all have one level, which needs no name.
	Named bool
	// Times is true if it is known how long the groups took.
	Times bool
	Rows  []levelsRow
}

type levelsRow struct {
	Name        string
	Cells       [][]tile
	Ready, Took string
}

func viewLevels(p *page) ([]view, error) {
	if len(p.Groups) == 0 {
		return nil, nil
	}
	data := levelsView{Levels: listLevels(p.Report), Named: hasLevels(p.Groups)}
	title := "Results by group"
	if data.Named {
		title = "Results by level"
	}
	for i := range p.Groups {
		g := &p.Groups[i]
		row := levelsRow{Name: g.Name, Ready: formatSeconds(g.ReadySeconds), Took: formatSeconds(g.WallSeconds)}
		data.Times = data.Times || row.Ready+row.Took != ""
		for _, level := range data.Levels {
			row.Cells = append(row.Cells, listTiles(g.Summary[level]))
		}
		data.Rows = append(data.Rows, row)
	}
	return showView(view{ID: "levels", Title: title, Data: data})
}

// listLevels returns the levels that some group has cases of.
func listLevels(r *reports.Report) (levels []scenarios.Level) {
	for _, level := range reports.Levels() {
		for _, g := range r.Groups {
			if _, ok := g.Summary[level]; ok {
				levels = append(levels, level)
				break
			}
		}
	}
	return levels
}

// hasLevels reports whether a case states its level.
func hasLevels(groups []reports.Group) bool {
	for _, g := range groups {
		for _, r := range g.Cases {
			if r.Level != "" {
				return true
			}
		}
	}
	return false
}

// formatSeconds returns how long something took, or nothing where that is not known.
func formatSeconds(s float64) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f s", s)
}
