package loadgen

import (
	"fmt"
	"math"

	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports"
)

// servedSection shows how long requests took according to the API server, and how many of them kept what Kubernetes
// promises.
func servedSection(groups []judge.VariantBlocks) reports.Section {
	t := reports.Table{
		Columns: []string{"variant", "verb", "scope", "requests", "promised for 99 %", "kept by", "50 % within", "99 % within"},
		Numeric: []int{3, 5},
	}
	for _, g := range groups {
		for _, s := range run.MergeServed(g.Blocks) {
			t.Rows = append(t.Rows, reports.Row{Cells: []string{
				g.Name, s.Verb, s.Scope, fmt.Sprint(s.Count), s.Objective().String(), fmt.Sprintf("%.2f %%", 100*s.WithinObjective()),
				formatBound(s.Bound(0.5)), formatBound(s.Bound(0.99)),
			}})
		}
	}
	if len(t.Rows) == 0 {
		return reports.Section{}
	}
	s := reports.Section{ID: "served", Title: "The API server's own indicator", Text: []string{
		"apiserver_request_sli_duration_seconds over the blocks, by verb and scope, for everybody who asked for pods and for self-subject reviews: the time in the server, without that of admission webhooks, of queues and of the network. It knows bounds of buckets.",
	}}
	return withTable(s, t)
}

func formatBound(seconds float64) string {
	if math.IsInf(seconds, 1) {
		return "more than any bound"
	}
	return fmt.Sprintf("%g s", seconds)
}
