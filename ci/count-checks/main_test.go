package main

import (
	"math"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/loadgen/predict"
	"github.com/authzconf/authzconf/scenarios"
)

func TestRoundUp(t *testing.T) {
	for _, c := range []struct{ d, cycle, want time.Duration }{
		{time.Minute, 12 * time.Second, time.Minute},
		{time.Minute, 11 * time.Second, 66 * time.Second},
		{time.Second, 30 * time.Second, 30 * time.Second},
	} {
		if got := roundUp(c.d, c.cycle); got != c.want {
			t.Errorf("%s in cycles of %s: %s, want %s", c.d, c.cycle, got, c.want)
		}
	}
}

// TestCountedAsPredicted compares what this program counts of a real API server, with nothing but client-go and the server's metrics,
// with what authzconf load predict says of the same agents.
func TestCountedAsPredicted(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	const agents = 20
	const every = time.Second
	plane, err := local.Start(t.Context(), local.Options{
		Binaries: &local.Binaries{}, FeatureGates: map[string]bool{"ConstrainedImpersonation": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	counted, err := countChecks(t.Context(), plane.Admin(), agents, every, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	predicted := predictChecks(t, agents, every)
	if got := counted.checksPerRequest(); math.Abs(got-predicted) > 0.02*predicted {
		t.Errorf("%.3f checks a request are counted (%+v), and %.3f predicted", got, counted, predicted)
	}
}

// predictChecks returns how many checks a request of such agents is predicted to have, with the check of the request itself.
func predictChecks(t *testing.T, agents int, every time.Duration) float64 {
	t.Helper()
	plan := predict.Defaults()
	plan.Authorizer.Chain = predict.RBACAlone
	plan.Gate, plan.RBAC = scenarios.GateOn, predict.ConstrainedRBAC
	workload := predict.DefaultWorkload()
	workload.Name, workload.Nodes, workload.DaemonSets, workload.Every = "agents", agents, 1, scenarios.Duration(every)
	plan.Workloads = []predict.Workload{workload}
	prediction, err := predict.Predict(&plan)
	if err != nil {
		t.Fatal(err)
	}
	outcome := prediction.Situations[0]
	return outcome.Steady.Checks.Value() / outcome.Requests
}
