package storm

import (
	"slices"
	"testing"
	"time"

	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// TestHold: what a run says of itself follows from what was asked for, and its blocks are sides of comparisons, in order.
func TestHold(t *testing.T) {
	p, text, err := profile.Load("steady")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.Pairs, p.Starts, p.Nodes, p.Comparisons = 2, 2, 24, slices.DeleteFunc(p.Comparisons, func(c profile.Comparison) bool { return c.Name != "gate" && c.Name != "associated-cold" })
	asked := func() *Options {
		return &Options{Profile: p, ProfileYAML: text, Seed: 7, Shards: 1, Engine: Processes}
	}
	sound := func() *run.Run {
		o := asked()
		r := o.head()
		r.Started, r.Finished = began, began.Add(time.Hour)
		r.Servers = []run.Server{{Name: "gate-on", GitVersion: "v1.37.1", Emulated: "1.37", Gate: "on"}, {Name: "gate-off", GitVersion: "v1.37.1", Emulated: "1.37", Gate: "off"}}
		r.WarmUps = p.Starts * len(r.Servers)
		histories := map[life]*population.History{}
		for i, planned := range order(p, 7) {
			sends := p.Plan(planned.seed).Stripe(0, 1)
			b := run.Block{
				Pair: planned.pair, Role: planned.role, Start: planned.start, Variant: planned.side.Variant, Server: string(planned.side.Server), Comparison: planned.comparison.Name, Agents: r.Agents,
				ServerStarted: began.Add(time.Duration(10*planned.start) * time.Minute), Started: began.Add(time.Duration(10*planned.start+i+1) * time.Minute), Length: run.Duration(20 * time.Second),
				Planned: int64(len(sends)), Sent: int64(len(sends)), Answers: map[string]int64{"200": int64(len(sends))},
				Reviews: []run.ReviewCount{{ReviewKind: run.ReviewKind{Mode: "legacy", Decision: "Allow"}, Count: 10}}, Attempts: []run.AttemptCount{{Mode: "legacy", Decision: "allowed", Count: 10}},
			}
			of := life{b.Server, b.Start}
			if histories[of] == nil {
				histories[of], _ = population.NewHistory(p, planned.side.Server, "1.37.1")
			}
			if b.Predicted, err = histories[of].Predict(planned.side.Does(), b.Started, population.Planned(sends, 5*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			b.Latency.Record(10 * time.Millisecond)
			r.Blocks = append(r.Blocks, b)
		}
		return r
	}
	on := func(r *run.Run) *run.Block {
		return &r.Blocks[slices.IndexFunc(r.Blocks, func(b run.Block) bool { return b.Server == "gate-on" })]
	}
	for name, change := range map[string]func(*run.Run){
		"":                        func(*run.Run) {},
		"population":              func(r *run.Run) { r.Population.Nodes++ },
		"seed":                    func(r *run.Run) { r.Seed++ },
		"shards":                  func(r *run.Run) { r.Shards++ },
		"engine":                  func(r *run.Run) { r.Engine = Pods },
		"authorizer":              func(r *run.Run) { r.Authorizer = "nobody" },
		"variant":                 func(r *run.Run) { r.Blocks[1].Variant = "none" },
		"server":                  func(r *run.Run) { r.Blocks[0].Server = "gate-off-2" },
		"role":                    func(r *run.Run) { r.Blocks[0].Role = "C" },
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
		"more first contacts":     func(r *run.Run) { r.Blocks[0].Predicted.First++ },
		"seldom":                  func(r *run.Run) { r.Blocks[0].Predicted.Seldom = 9 },
		"often":                   func(r *run.Run) { r.Blocks[0].Predicted.Often = 1 },
		"nothing that it counts":  func(r *run.Run) { on(r).Attempts = nil },
		"what it emulates unsaid": func(r *run.Run) { r.Servers[0].Emulated, on(r).Attempts = "", nil },
		"longer blocks":           func(r *run.Run) { r.Blocks[1].Length *= 2 },
		"predicted at will":       func(r *run.Run) { r.Blocks[0].Predicted.Checks = []run.CheckRange{{Low: -9, High: 99}} },
		"a server twice":          func(r *run.Run) { r.Servers = append(r.Servers, r.Servers[0]) },
		"a slower authorizer":     func(r *run.Run) { r.Servers[0].WebhookDelay++ },
		"fewer warmed up":         func(r *run.Run) { r.WarmUps-- },
		"more is predicted":       func(r *run.Run) { r.Blocks[0].Predicted.Checks[0].High += 20 },
		"another is predicted":    func(r *run.Run) { r.Blocks[0].Predicted.Checks[0].Verb = "get" },
		"less is predicted":       func(r *run.Run) { r.Blocks[0].Predicted.Checks = r.Blocks[0].Predicted.Checks[1:] },
		"fewer agents asked":      func(r *run.Run) { r.Blocks[0].Predicted.Asked-- },
		"fewer planned":           func(r *run.Run) { r.Blocks[0].Planned-- },
		"a block less":            func(r *run.Run) { r.Blocks = r.Blocks[:7] },
		"another pair":            func(r *run.Run) { r.Blocks[0].Pair++ },
		"another start":           func(r *run.Run) { r.Blocks[7].Start = 0 },
		"an earlier process":      func(r *run.Run) { r.Blocks[7].ServerStarted = began },
		"a later process":         func(r *run.Run) { r.Blocks[0].ServerStarted = r.Finished },
		"late ones in time":       func(r *run.Run) { r.Blocks[0].Lag.RecordN(time.Second, 10) },
	} {
		r := sound()
		change(r)
		if err := asked().Hold(r); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
