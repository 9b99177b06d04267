package storm

import (
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/reports/load/run"
)

// TestHold: what a run says of itself follows from what was asked for, and its blocks are sides of comparisons, in order.
func TestHold(t *testing.T) {
	p, text, err := profile.Load("steady")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sound := func() *run.Run {
		o := &Options{Profile: p, ProfileYAML: text, Seed: 7, Shards: 1, Engine: Processes}
		r := o.head()
		r.Started, r.Finished = began, began.Add(time.Hour)
		r.Servers = []run.Server{{Name: "gate-on", GitVersion: "v1.37.1", Emulated: "1.37", Gate: "on"}, {Name: "gate-off", GitVersion: "v1.37.1", Emulated: "1.37", Gate: "off"}}
		block := func(role, variant, server string, after time.Duration) run.Block {
			return run.Block{
				Role: role, Variant: variant, Server: server, Comparison: "gate", Agents: r.Agents, Started: began.Add(after), Length: run.Duration(20 * time.Second), Sent: 10,
				Predicted: &run.Prediction{Requests: 10, Asked: 5, First: 5, Seldom: 2, Often: 2},
				Reviews:   []run.ReviewCount{{ReviewKind: run.ReviewKind{Mode: "legacy", Decision: "Allow"}, Count: 10}}, Attempts: []run.AttemptCount{{Mode: "legacy", Decision: "allowed", Count: 10}},
			}
		}
		r.Blocks = []run.Block{block("A", "legacy-gate-off", "gate-off", time.Minute), block("B", "legacy-gate-on", "gate-on", 2*time.Minute)}
		return r
	}
	for name, change := range map[string]func(*run.Run){
		"":                        func(*run.Run) {},
		"population":              func(r *run.Run) { r.Population.Nodes++ },
		"seed":                    func(r *run.Run) { r.Seed++ },
		"shards":                  func(r *run.Run) { r.Shards++ },
		"engine":                  func(r *run.Run) { r.Engine = Pods },
		"authorizer":              func(r *run.Run) { r.Authorizer = "nobody" },
		"variant":                 func(r *run.Run) { r.Blocks[1].Variant = "legacy-gate-off" },
		"server":                  func(r *run.Run) { r.Blocks[0].Server = "gate-on" },
		"role":                    func(r *run.Run) { r.Blocks[0].Role = "B" },
		"comparison":              func(r *run.Run) { r.Blocks[0].Comparison = "other" },
		"agents":                  func(r *run.Run) { r.Blocks[0].Agents-- },
		"the same on both":        func(r *run.Run) { r.Blocks[0].AA = true },
		"before the run":          func(r *run.Run) { r.Blocks[0].Started = time.Time{} },
		"no beginning":            func(r *run.Run) { r.Started = time.Time{} },
		"at the same time":        func(r *run.Run) { r.Blocks[1].Started = r.Blocks[0].Started },
		"gate":                    func(r *run.Run) { r.Servers[0].Gate = "off" },
		"emulated":                func(r *run.Run) { r.Servers[0].Emulated = "1.36" },
		"no prediction":           func(r *run.Run) { r.Blocks[0].Predicted = nil },
		"of other requests":       func(r *run.Run) { r.Blocks[0].Predicted.Requests++ },
		"more agents":             func(r *run.Run) { r.Blocks[0].Predicted.Asked = r.Agents + 1 },
		"more first contacts":     func(r *run.Run) { r.Blocks[0].Predicted.First = 6 },
		"seldom":                  func(r *run.Run) { r.Blocks[0].Predicted.Seldom = 3 },
		"often":                   func(r *run.Run) { r.Blocks[0].Predicted.Often = 1 },
		"nothing that it counts":  func(r *run.Run) { r.Blocks[1].Attempts = nil },
		"what it emulates unsaid": func(r *run.Run) { r.Servers[0].Emulated, r.Blocks[1].Attempts = "", nil },
		"longer blocks":           func(r *run.Run) { r.Blocks[1].Length *= 2 },
		"predicted at will":       func(r *run.Run) { r.Blocks[0].Predicted.Checks = []run.CheckRange{{Low: -9, High: 99}} },
		"late ones in time":       func(r *run.Run) { r.Blocks[0].Lag.RecordN(time.Second, 10) },
	} {
		o := &Options{Profile: p, ProfileYAML: text, Seed: 7, Shards: 1, Engine: Processes}
		r := sound()
		change(r)
		if err := o.Hold(r); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
