package conformance

import (
	"slices"
	"strconv"
	"testing"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestGrouped: which cells share a cluster. Chains run beside the ordinary cell where a cluster is cheap, after it where
// it is not, and beside each other where those before have many scenarios.
func TestGrouped(t *testing.T) {
	for _, tc := range []struct {
		provider string
		jobs     int
		want     []string
	}{
		{server.Local, 1, []string{"ordinary", "first last", "abac"}},
		{server.Local, fullGroup, []string{"ordinary", "first", "last", "abac"}},
		{server.Kind, fullGroup, []string{"ordinary first last abac"}},
	} {
		provider, want := tc.provider, tc.want
		var cells []*Cell
		for _, name := range []string{"ordinary", "first", "last", "abac"} {
			o := server.Options{Cell: verdicts.Cell{Name: name, Provider: provider, Kubernetes: "1.37", Gate: scenarios.GateOn}}
			o.Chain = map[string]string{"first": "webhook-first", "last": "webhook-last", "abac": "abac"}[name]
			c := &Cell{Plan: CellPlan{Target: o}, jobs: map[string]*job{}}
			for i := range tc.jobs {
				c.jobs[strconv.Itoa(i)] = &job{}
			}
			cells = append(cells, c)
		}
		got := seq.Map(groupCells(cells), func(g []*Cell) (names string) {
			for i, c := range g {
				if i > 0 {
					names += " "
				}
				names += c.Plan.Target.Cell.Name
			}
			return names
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", provider, got, want)
		}
	}
}
