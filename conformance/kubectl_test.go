package conformance

import (
	"testing"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
)

// TestKubectlsArePostponed: where a kubectl has to be built, its scenarios come last, unless the cells that wait for it would
// leave no worker for the others.
func TestKubectlsArePostponed(t *testing.T) {
	t.Setenv("AUTHZCONF_CACHE", t.TempDir())
	for name, tc := range map[string]struct {
		groups, withKubectl, parallel int
		want                          bool
	}{
		"all cells at once":          {groups: 5, withKubectl: 5, parallel: 0, want: true},
		"as many workers as groups":  {groups: 2, withKubectl: 2, parallel: 2, want: true},
		"two of four workers wait":   {groups: 5, withKubectl: 2, parallel: 4, want: true},
		"all workers would wait":     {groups: 5, withKubectl: 2, parallel: 2, want: false},
		"the only worker would wait": {groups: 2, withKubectl: 1, parallel: 1, want: false},
		"no scenario runs kubectl":   {groups: 5, withKubectl: 0, parallel: 4, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Session{Parallel: tc.parallel, ctx: t.Context()}
			var groups [][]*Cell
			for i := range tc.groups {
				scenario := &scenarios.Scenario{Steps: []scenarios.Step{{}}}
				if i < tc.withKubectl {
					scenario.Steps[0].Kubectl = &scenarios.Kubectl{}
				}
				cell := &Cell{Plan: CellPlan{Target: server.Options{}}, jobs: map[string]*job{"s": {scenario: scenario}}}
				groups = append(groups, []*Cell{cell})
			}
			s.postponeKubectls(groups)
			for i, group := range groups {
				want := tc.want && i < tc.withKubectl
				if got := group[0].isKubectlLate; got != want {
					t.Errorf("cell %d: postponed %t, want %t", i, got, want)
				}
			}
		})
	}
}
