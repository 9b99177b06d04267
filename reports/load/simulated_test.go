package load

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
)

// simulation makes runs as a generator leaves them behind.
type simulation struct {
	seed     uint64
	pairs    int
	aaPairs  int
	requests int
	effect   float64 // of B on the latency, as a part
	aaEffect float64
	noise    float64 // of a block, as a deviation of the logarithm
	process  float64 // of a server's process, likewise
	starts   int     // of the servers; 5 if it is 0
	agents   int
}

func (s simulation) run() run.Run {
	s.agents = cmp.Or(s.agents, 100)
	s.starts = cmp.Or(s.starts, 5)
	r := rand.New(rand.NewPCG(s.seed, 2))
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	out := run.Run{
		APIVersion: run.APIVersion, Kind: run.Kind, Tool: "v0.0.0-test", Command: []string{"authzconf", "load"},
		Profile: "node-agent-steady", ProfileYAML: "name: node-agent-steady\n", Seed: int64(s.seed),
		Started: began, Finished: began.Add(time.Hour),
		Machine: run.Machine{CPUs: 2, MemoryBytes: 8 << 30, Go: "go1.26", OS: "linux"},
		Servers: []run.Server{
			{Name: "gate-off", GitVersion: "v1.37.1", Gate: "off", WebhookDelay: run.Duration(time.Millisecond)},
			{Name: "gate-off-2", GitVersion: "v1.37.1", Gate: "off", WebhookDelay: run.Duration(time.Millisecond)},
			{Name: "gate-on", GitVersion: "v1.37.1", Gate: "on", WebhookDelay: run.Duration(time.Millisecond)},
		},
		Population: run.Population{Nodes: s.agents, PodsPerNode: 30, DaemonSets: 1, ServiceAccounts: 1, Arrivals: "periodic", Every: run.Duration(12 * time.Second)},
		Agents:     s.agents, Pairs: s.pairs, Starts: s.starts, Shards: 1, Problems: []run.Problem{},
	}
	processes := map[string][]float64{}
	for _, server := range out.Servers {
		for range s.starts {
			processes[server.Name] = append(processes[server.Name], s.process*r.NormFloat64())
		}
	}
	fill := func(b *run.Block, pairs int, shared, effect float64) {
		b.Start = b.Pair * s.starts / pairs
		b.ServerStarted = began.Add(time.Duration(b.Start) * time.Hour)
		s.fill(r, b, shared+processes[b.Server][b.Start], effect)
	}
	for i := range max(s.pairs, s.aaPairs) {
		shared := 0.1 * r.NormFloat64()
		if i < s.pairs {
			a := run.Block{Pair: i, Role: "A", Variant: "legacy", Server: "gate-off", Comparison: "gate", Agents: s.agents}
			b := run.Block{Pair: i, Role: "B", Variant: "associated-node", Server: "gate-on", Comparison: "gate", Agents: s.agents}
			fill(&a, s.pairs, shared, 0)
			fill(&b, s.pairs, shared, s.effect)
			if i%2 == 1 {
				a, b = b, a
			}
			out.Blocks = append(out.Blocks, a, b)
		}
		if shared = 0.1 * r.NormFloat64(); i < s.aaPairs {
			for _, role := range []string{"A", "B"} {
				server := map[string]string{"A": "gate-off", "B": "gate-off-2"}[role]
				b := run.Block{Pair: i, Role: role, AA: true, Variant: "legacy", Server: server, Comparison: "same", Agents: s.agents}
				effect := 0.0
				if role == "B" {
					effect = s.aaEffect
				}
				fill(&b, s.aaPairs, shared, effect)
				out.Blocks = append(out.Blocks, b)
			}
		}
	}
	for i := range out.Blocks {
		out.Blocks[i].Started = began.Add(time.Duration(i) * 20 * time.Second)
	}
	return out
}

func (s simulation) fill(r *rand.Rand, b *run.Block, shared, effect float64) {
	n := int64(s.requests)
	b.Length = run.Duration(10 * time.Second)
	b.Planned, b.Sent = n, n
	b.Answers = map[string]int64{"200": n}
	level := shared + s.noise*r.NormFloat64() + math.Log1p(effect)
	kind := b.Kinds["list"]
	for range n {
		d := time.Duration(float64(4*time.Millisecond) * math.Exp(level+0.2*r.NormFloat64()))
		b.Latency.Record(d)
		b.Service.Record(d - 50*time.Microsecond)
		b.Lag.Record(50 * time.Microsecond)
		b.WebhookLatency.Record(time.Millisecond)
		kind.Record(d)
	}
	b.Kinds = map[string]histogram.Histogram{"list": kind}
	perRequest := map[string]int64{"legacy": 2, "associated-node": 1}[b.Variant]
	mode := map[string]string{"legacy": "legacy", "associated-node": "associated-node"}[b.Variant]
	b.Reviews = []run.ReviewCount{{ReviewKind: run.ReviewKind{Mode: "request", Verb: "list", Decision: "Allow"}, Count: n}}
	if perRequest > 1 {
		b.Reviews = append(b.Reviews, run.ReviewCount{ReviewKind: run.ReviewKind{Mode: mode, Verb: "impersonate", Decision: "Allow"}, Count: n * (perRequest - 1)})
	} else {
		// The first request of each agent is cold.
		b.Reviews = append(b.Reviews, run.ReviewCount{ReviewKind: run.ReviewKind{Mode: mode, Verb: "impersonate-on:associated-node:list", Decision: "Allow"}, Count: n/10 + r.Int64N(5)})
	}
	b.Predicted = &run.Prediction{Requests: n, Asked: b.Agents, Seldom: 1, Often: 4}
	if b.Pair == 0 { // whoever asks was not there before
		b.Predicted.First = n
	}
	for _, c := range b.Reviews {
		// Of requests under way at once each may ask what one could.
		b.Predicted.Checks = append(b.Predicted.Checks, run.CheckRange{ReviewKind: c.ReviewKind, Low: c.Count, High: c.Count + c.Count/20*(2-perRequest)})
	}
	for range 10 {
		b.Timeline = append(b.Timeline, run.Second{Sent: n / 10, Done: n / 10, Reviews: reviewsOf(b) / 10})
	}
	b.Timeline[0].Reviews += reviewsOf(b) % 10
	idle := run.Duration(time.Second)
	b.Cost = map[string]run.Cost{run.APIServer: {CPU: run.Duration(time.Duration(n)*2*time.Millisecond) + idle, Idle: idle, RSS: 300 << 20}}
}

// sound is a run that passes by allOf.
func sound() simulation {
	return simulation{seed: 11, pairs: 20, aaPairs: 20, requests: 400, noise: 0.02, process: 0.005}
}

func allOf() Thresholds {
	return Thresholds{
		Limits: Limits{ReviewsPerRequest: 2.5, P99: run.Duration(time.Second), SLOHeld: true, ErrorRate: new(0.001)},
		Margin: 0.05, MarginP99: 0.10,
	}
}

func reasonsText(r Result) string { return fmt.Sprintf("%s %q", r.Outcome, r.Reasons) }

// fewAnswers leaves each kind of request that has an objective one answer a block.
func fewAnswers(r *run.Run) {
	for i := range r.Blocks {
		one, rest := histogram.Histogram{}, histogram.Histogram{}
		one.RecordN(time.Millisecond, 1)
		rest.RecordN(time.Millisecond, r.Blocks[i].Latency.Count()-1)
		r.Blocks[i].Kinds = map[string]histogram.Histogram{"get": one, "watch": rest}
	}
}
