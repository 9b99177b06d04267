package conformance_test

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// planOf plans the scenarios of some files on the newest version.
func planOf(t *testing.T, gate scenarios.Gate, files fstest.MapFS) *conformance.Plan {
	t.Helper()
	texts := conformance.Texts{Scenarios: files, Fixtures: fstest.MapFS{}}
	var err error
	if texts.Set, err = scenarios.Load(texts.Scenarios, texts.Fixtures); err != nil {
		t.Fatal(err)
	}
	cells := matrixtest.NewestCells(t, gate)
	return conformance.NewPlan(conformance.PlanOptions{Texts: texts, Cells: cells, Seed: 1})
}

// execute runs a plan, and returns its report and record.
func execute(ctx context.Context, t *testing.T, p *conformance.Plan) (*product.RunResult, error) {
	return product.Execute(ctx, product.Run{
		PreparedRun: &product.PreparedRun{Product: conformance.Product, Plan: p}, Invocation: product.NewInvocation(nil, "v0", t.Output()),
		Command: []string{"authzconf", "run"}, Say: func(text string) { t.Log(text) },
		Judged: func(product.Case, reports.Result) {},
	})
}

// TestInterruptedBeforeTheFirstScenario has Ctrl-C arrive before anything runs: nothing must wait, and everything is
// invalid. A plan can be run again in the same process.
func TestInterruptedBeforeTheFirstScenario(t *testing.T) {
	plan := planOf(t, scenarios.GateDefault, fstest.MapFS{"waits.yaml": {Data: []byte(waiting)}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		ended := make(chan *product.RunResult)
		go func() {
			made, err := execute(ctx, t, plan)
			if err != nil {
				t.Error(err)
			}
			ended <- made
		}()
		select {
		case made := <-ended:
			if made == nil {
				return
			}
			if r := made.Report.Groups[0].Cases; len(r) != 1 || r[0].Verdict != verdicts.Invalid {
				t.Errorf("%+v", r)
			}
			if made.Report.Outcome.Result != verdicts.Invalid {
				t.Errorf("outcome %s", made.Report.Outcome.Result)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it waits for scenarios that never run")
		}
	}
}
