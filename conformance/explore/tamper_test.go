package explore

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestWrongModel has a model that is wrong about one group: explore has to find
// it, to leave nothing else in the case, and to print a file that loads.
func TestWrongModel(t *testing.T) {
	sample.InTurn(t, 0, 2)
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cells := matrixtest.NewestCells(t, scenarios.GateOn)
	p := NewPlan(Options{Cells: cells, Cases: 120, Seed: 3, tamper: expectAnotherGroup}).(*plan)
	made, err := execute(t, p)
	if err != nil {
		t.Fatal(err)
	}
	if o := made.Report.Outcome; o.Result != verdicts.Failed {
		t.Fatalf("a wrong model was not noticed: %+v", o)
	}
	ref := p.refs[p.cases[0].ID]
	found := p.findResult(ref).disagreements
	if len(found) == 0 {
		t.Fatal("there is no disagreement")
	}
	for _, d := range found {
		testSmall(t, d)
		if text, recorded := made.Log.View().File(d.file); !recorded || string(text) != d.scenario {
			t.Errorf("case %d: its file is not in the record", d.number)
		}
	}
	// The evidence alone gives the same.
	other := NewPlan(Options{Cells: cells, Cases: 120, Seed: 3, tamper: expectAnotherGroup})
	if got := other.Judge(p.cases[0].ID, made.Log.View()); reports.Change(got, p.Judge(p.cases[0].ID, made.Log.View())) != "" {
		t.Errorf("judged again: %+v", got)
	}
}

// expectAnotherGroup makes a model wrong about one group of one user.
func expectAnotherGroup(s *scenarios.Scenario) {
	for _, st := range s.Steps {
		imp := (*scenarios.Impersonate)(nil)
		if st.Request != nil {
			imp = st.Request.Impersonate
		}
		asksForBoth := imp != nil && imp.User == "wanda" && slices.Contains(imp.Groups, "crew")
		if asksForBoth && len(st.Expect.Reviews) > 0 {
			st.Expect.Reviews[0].Name += "-wrong"
		}
	}
}

// testSmall wants a disagreement to be made small, and to be printed as a file that loads.
func testSmall(t *testing.T, d disagreement) {
	t.Helper()
	if strings.Contains(d.scenario, "A twin is missing") {
		t.Errorf("case %d: no twin could be made:\n%s", d.number, d.scenario)
		return
	}
	set, err := scenarios.Load(fstest.MapFS{"found.yaml": {Data: []byte(d.scenario)}}, fixtures.FS)
	if err != nil {
		t.Errorf("case %d: the printed file does not load: %v", d.number, err)
		return
	}
	s := set.All()[0]
	if imp := s.Steps[0].Request.Impersonate; !slices.Equal(imp.Groups, []string{"crew"}) || imp.UID != "" || imp.Extra != nil ||
		slices.ContainsFunc(s.Grants, func(g scenarios.Grant) bool { return !strings.HasPrefix(g.ID, "twin-") }) {
		t.Errorf("case %d was not made small:\n%s", d.number, d.scenario)
	}
	if !d.overRBAC {
		t.Errorf("case %d: with RBAC objects it was not seen", d.number)
	}
}

// execute runs a plan.
func execute(t *testing.T, p product.Plan) (*product.RunResult, error) {
	return product.Execute(context.Background(), product.Run{
		PreparedRun: &product.PreparedRun{Product: Product, Plan: p},
		Invocation:  product.NewInvocation(nil, "test", os.Stderr),
		Command:     []string{"authzconf", "explore"},
		Say:         func(text string) { t.Log(text) },
		Status:      func(string) {},
		Judged:      func(c product.Case, r reports.Result) { t.Log(r.Verdict, c.ID, r.Reason) },
	})
}
