package pages

const knownTemplate = `<div class="scroll"><table>
<thead><tr><th scope="col">Entry</th><th scope="col">Stated reason</th><th scope="col">Issue</th><th scope="col">Dates</th><th scope="col" class="n">Matches</th><th scope="col">State</th></tr></thead>
<tbody>{{range .}}
<tr{{if ne .State "fails"}} class="fail"{{end}}><th scope="row">{{.Describe}}</th><td>{{.Reason}}</td><td>{{if link .Issue}}<a href="{{.Issue}}" rel="noreferrer">{{.Issue}}</a>{{else}}{{.Issue}}{{end}}</td><td>{{.Dates}}</td><td class="n">{{.Matched}}</td><td>{{.State}}{{with .Detail}}: {{.}}{{end}}</td></tr>{{end}}
</tbody></table></div>`

// knownSection shows the known-failing list.
var knownSection = section{name: "known", template: knownTemplate, views: func(p *page) ([]view, error) {
	if len(p.KnownFailing) == 0 {
		return nil, nil
	}
	return showView(view{ID: "known", Title: "Known failing", Data: p.KnownFailing})
}}
