package storm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/run"
)

// TestCountServed checks that the API server's indicator is counted for what agents ask for, by verb and scope, and not
// for watches.
func TestCountServed(t *testing.T) {
	at := func(part, verb, resource, scope, bound string, value float64) sample {
		return sample{
			server.ObjectivesMetric + part,
			model.Metric{
				"verb":     model.LabelValue(verb),
				"resource": model.LabelValue(resource),
				"scope":    model.LabelValue(scope),
				"le":       model.LabelValue(bound),
			},
			value,
		}
	}
	got := countServed([]sample{
		at("_bucket", "LIST", "pods", "cluster", "0.05", 7),
		at("_bucket", "LIST", "pods", "cluster", "+Inf", 9),
		at("_count", "LIST", "pods", "cluster", "", 9),
		at("_count", "WATCH", "pods", "cluster", "", 5),
		at("_count", "LIST", "leases", "cluster", "", 100),
		at("_sum", "LIST", "pods", "cluster", "", 3),
		at("_count", "POST", "selfsubjectaccessreviews", "resource", "", 2),
	})
	want := []run.ServedRequests{
		{Verb: "LIST", Scope: "cluster", Count: 9, Within: map[string]int64{"0.05": 7, "+Inf": 9}},
		{Verb: "POST", Scope: "resource", Count: 2, Within: map[string]int64{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
