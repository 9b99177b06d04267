package storm

import (
	"cmp"
	"slices"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/run"
)

// servedResources are the resources that agents ask for. Others in a cluster may ask for them, too.
var servedResources = []string{"pods", "selfsubjectaccessreviews"}

// isServed reports whether a sample belongs to the indicator for what agents ask for.
func (s sample) isServed() bool {
	isIndicator := s.family == server.ObjectivesMetric+"_bucket" || s.family == server.ObjectivesMetric+"_count"
	return isIndicator && slices.Contains(servedResources, string(s.labels["resource"]))
}

// countServed returns how long requests took according to the API server, by verb and scope. A watch has no objective.
func countServed(increased []sample) (list []run.ServedRequests) {
	at := func(s sample) *run.ServedRequests {
		verb, scope := string(s.labels["verb"]), string(s.labels["scope"])
		i := slices.IndexFunc(list, func(l run.ServedRequests) bool { return l.Verb == verb && l.Scope == scope })
		if i < 0 {
			list = append(list, run.ServedRequests{Verb: verb, Scope: scope, Within: map[string]int64{}})
			i = len(list) - 1
		}
		return &list[i]
	}
	for _, s := range increased {
		if !s.isServed() || s.labels["verb"] == "WATCH" {
			continue
		}
		if served := at(s); s.family == server.ObjectivesMetric+"_count" {
			served.Count += int64(s.value)
		} else {
			served.Within[string(s.labels["le"])] += int64(s.value)
		}
	}
	slices.SortFunc(list, func(a, b run.ServedRequests) int {
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Scope, b.Scope))
	})
	return list
}
