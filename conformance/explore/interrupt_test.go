package explore

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/authzconf/authzconf/ci/sample"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestInterruptedSearch ends a run, as Ctrl-C does, while it looks for a smaller case: the case that it has is kept, the run has
// failed, and the record says the same.
func TestInterruptedSearch(t *testing.T) {
	sample.InTurn(t, 1, 2)
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cells := matrixtest.NewestCells(t, scenarios.GateOn)
	options := Options{Cells: cells, Cases: 120, Seed: 3, tamper: expectAnotherGroup}
	p := NewPlan(options).(*plan)
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	made, err := product.Execute(ctx, product.Run{
		PreparedRun: &product.PreparedRun{Product: Product, Plan: p},
		Invocation:  product.NewInvocation(nil, "test", os.Stderr),
		Command:     []string{"authzconf", "explore"},
		Say: func(text string) {
			t.Log(text)
			if strings.Contains(text, "looking for a smaller case") {
				interrupt()
			}
		},
		Status: func(string) {},
		Judged: func(product.Case, reports.Result) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if o := made.Report.Outcome; o.Result != verdicts.Failed {
		t.Errorf("the outcome is %+v, want a failure", o)
	}
	id := p.cases[0].ID
	known := p.findResult(p.refs[id])
	if len(known.disagreements) != 1 || known.disagreements[0].scenario == "" {
		t.Fatalf("%d disagreements were kept, want the one whose search was ended", len(known.disagreements))
	}
	if got := NewPlan(options).Judge(id, made.Log.View()); reports.Change(got, p.Judge(id, made.Log.View())) != "" {
		t.Errorf("judged again: %+v", got)
	}
}
