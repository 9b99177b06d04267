// Package simulated makes runs as a storm leaves them behind. It is for tests.
package simulated

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/reports/statistics/histogram"
	"github.com/authzconf/authzconf/scenarios"
)

// Storm is what a run is made from.
type Storm struct {
	Seed     uint64
	Pairs    int
	AAPairs  int
	Requests int
	Effect   float64 // of B on the latency, as a part
	AAEffect float64
	Noise    float64 // the deviation of the logarithm of a block
	Process  float64 // the deviation of the logarithm of a server's process
	Starts   int     // of the servers; 5 if it is 0
	Agents   int
}

// Run returns the run.
func (s Storm) Run() run.Run {
	s.Agents = cmp.Or(s.Agents, 100)
	s.Starts = cmp.Or(s.Starts, 5)
	r := rand.New(rand.NewPCG(s.Seed, 2))
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	out := run.Run{
		Profile:  "node-agent-steady",
		Seed:     int64(s.Seed),
		Started:  began,
		Finished: began.Add(time.Hour),
		Machine:  run.Machine{CPUs: 2, MemoryBytes: 8 << 30, Go: "go1.26", OS: "linux"},
		Servers: []run.Server{
			{Name: "gate-off", GitVersion: "v1.37.1", Gate: scenarios.GateOff, WebhookDelay: run.Duration(time.Millisecond)},
			{Name: "gate-off-2", GitVersion: "v1.37.1", Gate: scenarios.GateOff, WebhookDelay: run.Duration(time.Millisecond)},
			{Name: "gate-on", GitVersion: "v1.37.1", Gate: scenarios.GateOn, WebhookDelay: run.Duration(time.Millisecond)},
		},
		Population: run.Population{
			Nodes:           s.Agents,
			PodsPerNode:     30,
			DaemonSets:      1,
			ServiceAccounts: 1,
			Arrivals:        "periodic",
			Every:           run.Duration(12 * time.Second),
		},
		Agents:   s.Agents,
		Pairs:    s.Pairs,
		Starts:   s.Starts,
		Shards:   1,
		Problems: []run.Problem{},
	}
	m := maker{Storm: s, random: r, began: began, processes: map[string][]float64{}}
	for _, server := range out.Servers {
		for range s.Starts {
			m.processes[server.Name] = append(m.processes[server.Name], s.Process*r.NormFloat64())
		}
	}
	for i := range max(s.Pairs, s.AAPairs) {
		shared := 0.1 * r.NormFloat64()
		if i < s.Pairs {
			out.Blocks = append(out.Blocks, m.pair(i, shared)...)
		}
		if shared = 0.1 * r.NormFloat64(); i < s.AAPairs {
			out.Blocks = append(out.Blocks, m.samePair(i, shared)...)
		}
	}
	for i := range out.Blocks {
		out.Blocks[i].Started = began.Add(time.Duration(i) * 20 * time.Second)
	}
	return out
}

// maker makes the blocks of a run.
type maker struct {
	Storm
	random    *rand.Rand
	began     time.Time
	processes map[string][]float64 // by how much each process of a server is slower, by start
}

// pair makes a pair of the comparison "gate". Every second one begins with B.
func (m maker) pair(number int, shared float64) []run.Block {
	a := m.block(number, run.Use{Comparison: "gate", Role: "A"}, "legacy", "gate-off")
	b := m.block(number, run.Use{Comparison: "gate", Role: "B"}, "associated-node", "gate-on")
	m.place(&a, m.Pairs, shared, 0)
	m.place(&b, m.Pairs, shared, m.Effect)
	if number%2 == 1 {
		a, b = b, a
	}
	return []run.Block{a, b}
}

// samePair makes a pair of the A/A comparison "same".
func (m maker) samePair(number int, shared float64) []run.Block {
	a := m.block(number, run.Use{Comparison: "same", Role: "A", AA: true}, "legacy", "gate-off")
	b := m.block(number, run.Use{Comparison: "same", Role: "B", AA: true}, "legacy", "gate-off-2")
	m.place(&a, m.AAPairs, shared, 0)
	m.place(&b, m.AAPairs, shared, m.AAEffect)
	return []run.Block{a, b}
}

// block makes a block of a pair that is not filled yet.
func (m maker) block(number int, use run.Use, variant, server string) run.Block {
	return run.Block{Pair: number, Uses: []run.Use{use}, Variant: variant, Server: server, Agents: m.Agents}
}

// place puts a block into its start of the servers, and fills it.
func (m maker) place(b *run.Block, pairs int, shared, effect float64) {
	b.Start = b.Pair * m.Starts / pairs
	b.ServerStarted = m.began.Add(time.Duration(b.Start) * time.Hour)
	m.fill(m.random, b, shared+m.processes[b.Server][b.Start], effect)
}

func (s Storm) fill(r *rand.Rand, b *run.Block, shared, effect float64) {
	n := int64(s.Requests)
	b.Length = run.Duration(10 * time.Second)
	b.Planned, b.Sent = n, n
	b.Answers = map[string]int64{"200": n}
	level := shared + s.Noise*r.NormFloat64() + math.Log1p(effect)
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
		b.Reviews = append(b.Reviews,
			run.ReviewCount{ReviewKind: run.ReviewKind{Mode: mode, Verb: "impersonate", Decision: "Allow"}, Count: n * (perRequest - 1)},
		)
	} else {
		// The first request of each agent is cold.
		b.Reviews = append(b.Reviews,
			run.ReviewCount{
				ReviewKind: run.ReviewKind{Mode: mode, Verb: "impersonate-on:associated-node:list", Decision: "Allow"},
				Count:      n/10 + r.Int64N(5),
			},
		)
	}
	b.Predicted = &run.Prediction{Requests: n, Agents: b.Agents, Fewest: 1, Most: 4}
	if b.Pair == 0 { // those who ask were not there before
		b.Predicted.First = n
	}
	for _, c := range b.Reviews {
		// Each of the requests that are open at the same time may ask what one of them could.
		b.Predicted.Checks = append(b.Predicted.Checks,
			run.CheckRange{ReviewKind: c.ReviewKind, Low: c.Count, High: c.Count + c.Count/20*(2-perRequest)},
		)
	}
	for range 10 {
		b.Timeline = append(b.Timeline, run.Second{Sent: n / 10, Done: n / 10, Reviews: countReviews(b) / 10})
	}
	b.Timeline[0].Reviews += countReviews(b) % 10
	idle := run.Duration(time.Second)
	b.Cost = map[string]run.Cost{run.APIServer: {CPU: run.Duration(time.Duration(n)*2*time.Millisecond) + idle, Idle: idle, RSS: 300 << 20}}
}

// Sound returns a storm in which nothing is wrong: B has half of the reviews of A, and is as fast.
func Sound() Storm {
	return Storm{Seed: 11, Pairs: 20, AAPairs: 20, Requests: 400, Noise: 0.02, Process: 0.005}
}

func countReviews(b *run.Block) (n int64) {
	for _, r := range b.Reviews {
		n += r.Count
	}
	return n
}
