package conformance

import (
	"slices"
	"testing"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestGrouped: which cells share a cluster. Chains run beside the ordinary cell where a cluster is cheap, after it where
// it is not.
func TestGrouped(t *testing.T) {
	for provider, want := range map[string][]string{
		server.Local: {"ordinary", "first last", "abac"},
		server.Kind:  {"ordinary first last abac"},
	} {
		var cells []*Cell
		for _, name := range []string{"ordinary", "first", "last", "abac"} {
			o := server.Options{Cell: verdicts.Cell{Name: name, Provider: provider, Kubernetes: "1.37", Gate: scenarios.GateOn}}
			o.Chain = map[string]string{"first": "webhook-first", "last": "webhook-last", "abac": "abac"}[name]
			cells = append(cells, &Cell{Plan: CellPlan{Target: o}})
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
