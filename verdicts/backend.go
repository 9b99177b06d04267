package verdicts

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// checkBackend demands that the aggregated API server is told of the expected users, gets the request as it was sent,
// and gets no impersonation header.
//
// Source: the reference page on the aggregation layer; k8s.io/kube-aggregator/pkg/apiserver/handler_proxy.go.
func (v *stepJudge) checkBackend() {
	var users []scenarios.User
	var leaked, requestLines []string
	for _, r := range v.o.Backend {
		users = append(users, r.User)
		requestLines = append(requestLines, r.Method+" "+r.URL)
		if len(r.Impersonation) > 0 {
			leaked = append(leaked, fmt.Sprint(r.Impersonation))
		}
	}
	v.compare("backend", RenderUsers(v.expect.Backend), RenderUsers(users))
	if len(users) == 1 {
		v.compare("backend (request)", v.o.Request.Method+" "+v.o.Request.URL, requestLines[0])
	}
	v.compare("backend (impersonation headers)", "none", scenarios.List(leaked))
}

// backendBehaviour describes what reached the aggregated API server, a line for each request.
func backendBehaviour(o *Observation) []string {
	return seq.Map(o.Backend, func(r BackendRequest) string {
		return strings.TrimSpace(
			"backend: " + r.Method + " " + r.URL + " by " + r.User.Render() + " " + scenarios.RenderExtra(r.Impersonation),
		)
	})
}

// RenderUsers returns users on one line.
func RenderUsers(users []scenarios.User) string {
	return renderLines(users, scenarios.User.Render)
}

// renderLines returns a list on one line, after each of its items was rendered by itself.
func renderLines[T any](list []T, line func(T) string) string {
	return scenarios.List(seq.Map(list, line))
}
