package conformance_test

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// TestInterruptedBeforeTheFirstScenario has Ctrl-C arrive before anything runs: nothing must wait, and everything is
// invalid. A plan can be run again in the same process.
func TestInterruptedBeforeTheFirstScenario(t *testing.T) {
	files, none := fstest.MapFS{"waits.yaml": {Data: []byte(waiting)}}, fstest.MapFS{}
	set, err := scenarios.Load(files, none)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := matrix.Matrix{Provider: "local", Kubernetes: []string{matrix.Newest()}, Gate: "default", Binaries: &local.Binaries{}}.Cells()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := conformance.Plan(set, cells, conformance.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		ended := make(chan *conformance.Recorded)
		go func() {
			run, err := conformance.Execute(ctx, conformance.Options{
				Common: conformance.Common{
					Texts: reports.Texts{Set: set, Scenarios: files, Fixtures: none}, Events: func(conformance.Event) {},
				},
				Plan: plan,
			})
			if err != nil {
				t.Error(err)
			}
			ended <- run
		}()
		select {
		case run := <-ended:
			if run == nil {
				return
			}
			if r := run.Report.Cells[0].Results; len(r) != 1 || r[0].Verdict != verdicts.Invalid {
				t.Errorf("%+v", r)
			}
			if run.Report.Outcome.Result != verdicts.Invalid {
				t.Errorf("outcome %s", run.Report.Outcome.Result)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it waits for scenarios that never run")
		}
	}
}
