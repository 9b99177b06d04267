package verdicts

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// backend judges whom the aggregated API server was told of. Of impersonation it must not be told at all.
func (v *stepJudge) backend() {
	var seen []scenarios.User
	var left, sent []string
	for _, r := range v.o.Backend {
		seen = append(seen, r.User)
		sent = append(sent, r.Method+" "+r.URL)
		if len(r.Impersonation) > 0 {
			left = append(left, fmt.Sprint(r.Impersonation))
		}
	}
	v.compare("backend", RenderUsers(v.expect.Backend), RenderUsers(seen))
	if len(seen) == 1 {
		v.compare("backend (request)", v.o.Request.Method+" "+v.o.Request.URL, sent[0])
	}
	v.compare("backend (impersonation headers)", "none", scenarios.List(left))
}

// backendBehaviour is what reached the aggregated API server.
func backendBehaviour(o *Observation) []string {
	return seq.Map(o.Backend, func(r BackendRequest) string {
		return strings.TrimSpace("backend: " + r.Method + " " + r.URL + " by " + r.User.Render() + " " + scenarios.RenderExtra(r.Impersonation))
	})
}

// RenderUsers lists users on one line.
func RenderUsers(users []scenarios.User) string {
	return lines(users, scenarios.User.Render)
}

func lines[T any](list []T, line func(T) string) string {
	return scenarios.List(seq.Map(list, line))
}
