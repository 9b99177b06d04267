package explore

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
)

// TestWrongModel has a model that is wrong about one group: explore has to find
// it, to leave nothing else in the case, and to print a file that loads.
func TestWrongModel(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cells, err := matrix.Matrix{
		Provider: "local", Kubernetes: []string{matrix.Newest()}, Gate: "on", Binaries: &local.Binaries{Progress: os.Stderr},
	}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(s *scenarios.Scenario) {
		for _, st := range s.Steps {
			imp := (*scenarios.Impersonate)(nil)
			if st.Request != nil {
				imp = st.Request.Impersonate
			}
			if imp != nil && imp.User == "wanda" && slices.Contains(imp.Groups, "crew") && len(st.Expect.Reviews) > 0 {
				st.Expect.Reviews[0].Name += "-wrong"
			}
		}
	}
	report, _, err := Run(context.Background(), Options{Cells: cells, Cases: 120, Seed: 3, tamper: wrong, Events: func(e Event) {
		if e.Text != "" {
			t.Log(e.Text)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Broken(); err != nil {
		t.Error(err)
	}
	if !report.Disagreed() {
		t.Fatal("a wrong model was not noticed")
	}
	for _, d := range report.Cells[0].Disagreements {
		if strings.Contains(d.Scenario, "A twin is missing") {
			t.Errorf("case %d: no twin could be made:\n%s", d.Case, d.Scenario)
			continue
		}
		set, err := scenarios.Load(fstest.MapFS{"found.yaml": {Data: []byte(d.Scenario)}}, fixtures.FS)
		if err != nil {
			t.Errorf("case %d: the printed file does not load: %v", d.Case, err)
			continue
		}
		s := set.All()[0]
		if imp := s.Steps[0].Request.Impersonate; !slices.Equal(imp.Groups, []string{"crew"}) || imp.UID != "" || imp.Extra != nil ||
			slices.ContainsFunc(s.Grants, func(g scenarios.Grant) bool { return !strings.HasPrefix(g.ID, "twin-") }) {
			t.Errorf("case %d was not made small:\n%s", d.Case, d.Scenario)
		}
		if !d.OverRBAC {
			t.Errorf("case %d: with RBAC objects it was not seen", d.Case)
		}
	}
}
