package verdicts

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// backend judges whom the aggregated API server was told of. Of impersonation it must not be told at all.
func (v *stepJudge) backend() {
	want := v.expect.Backend
	if want == nil {
		return
	}
	if !v.has(scenarios.Aggregation) {
		v.notJudged("backend")
		return
	}
	var seen []scenarios.User
	var left []string
	for _, r := range v.o.Backend {
		seen = append(seen, r.User)
		if len(r.Impersonation) > 0 {
			left = append(left, fmt.Sprint(r.Impersonation))
		}
	}
	v.compare("backend", RenderUsers(want), RenderUsers(seen))
	v.compare("backend (impersonation headers)", "none", scenarios.List(left))
}

// RenderUsers lists users on one line.
func RenderUsers(users []scenarios.User) string {
	var lines []string
	for _, u := range users {
		lines = append(lines, u.Render())
	}
	return scenarios.List(lines)
}

// backendBehaviour is what reached the aggregated API server.
func backendBehaviour(o *Observation) []string {
	var lines []string
	for _, r := range o.Backend {
		lines = append(lines, strings.TrimSpace("backend: "+r.Method+" "+r.URL+" by "+r.User.Render()+" "+scenarios.RenderExtra(r.Impersonation)))
	}
	return lines
}
