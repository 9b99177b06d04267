// Package pacer computes which agent sends when: the schedule of a storm. It is pure, because a schedule follows from
// its Plan alone. Every agent has a random generator of its own, so a shard computes only the stripe of its agents, and
// all stripes together are the schedule of a single process, to the nanosecond.
package pacer

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Arrivals is how the requests of all agents are spread over time.
type Arrivals string

const (
	// Constant has the same pause between any two requests. Agents take turns.
	Constant Arrivals = "constant"
	// Poisson has agents that are independent of one another, so that the pauses are exponential.
	Poisson Arrivals = "poisson"
	// Periodic has agents with a period and a phase of their own, and jitter.
	Periodic Arrivals = "periodic"
	// Burst has all agents at once, and again after every Plan.Every.
	Burst Arrivals = "burst"
	// Waves has each agent once, Plan.AtOnce of them at a time, as in a rollout. The next wave follows after
	// Plan.Every.
	Waves Arrivals = "waves"
)

// Known returns all arrivals.
func Known() []Arrivals { return []Arrivals{Constant, Poisson, Periodic, Burst, Waves} }

// Plan is everything from which a schedule follows.
type Plan struct {
	Arrivals Arrivals
	Agents   int
	// Rate is how many requests per second all agents send together. Bursts and waves have none.
	Rate   float64
	Length time.Duration // where the schedule ends
	// Jitter is the part of its period by which a periodic request may be early or late: 0 to less than 0.5, so that
	// the requests of an agent stay in order.
	Jitter float64
	Every  time.Duration // the time between two bursts (0 for a single one) or between two waves
	AtOnce int           // how many agents are in a wave
	// Opening means that every agent also asks at the beginning.
	Opening bool
	Mix     []int // the weights of the kinds of requests
	// Seed makes schedules differ.
	Seed uint64
}

// Send is one intended request.
type Send struct {
	At    time.Duration
	Agent int32
	Kind  int32 // an index of Plan.Mix
}

// Stripe is the part of the schedule of the agents a with a ≡ shard mod shards, in order of time, then of agents.
func (p Plan) Stripe(shard, shards int) (all []Send) {
	for a := shard; a < p.Agents; a += shards {
		all = p.agent(all, a)
	}
	Sort(all)
	return all
}

// Sort orders sends by time, then by agent, then by kind.
func Sort(all []Send) {
	slices.SortFunc(all, func(a, b Send) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Kind, b.Kind))
	})
}

// These are streams of an agent's random numbers. Numbers that are drawn for one purpose do not shift those for
// another.
const (
	streamTimes uint64 = iota
	streamKinds
	streamBackoff
)

func (p Plan) random(agent int, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.Seed, uint64(agent)<<2|stream))
}

func (p Plan) agent(all []Send, agent int) []Send {
	kinds := kindDrawer{random: p.random(agent, streamKinds), mix: p.Mix}
	add := func(at time.Duration) bool {
		if at >= p.Length {
			return false
		}
		all = append(all, Send{At: max(at, 0), Agent: int32(agent), Kind: kinds.next()})
		return true
	}
	if p.Opening {
		add(0)
	}
	switch p.Arrivals {
	case Burst:
		at := time.Duration(0)
		for add(at) && p.Every > 0 {
			at += p.Every
		}
	case Waves:
		add(p.Every * time.Duration(agent/p.AtOnce))
	default:
		next := p.positions(agent)
		for more := true; more; {
			more = add(p.at(next()))
		}
	}
	return all
}

// positions returns the positions of the agent's requests in the order of all requests. Position 7.5 is where 7.5
// requests are expected to have been sent by all agents. The explicit conversions keep compilers from fusing
// operations, which would give another schedule on another processor.
func (p Plan) positions(agent int) func() float64 {
	n, random := float64(p.Agents), p.random(agent, streamTimes)
	switch p.Arrivals {
	case Poisson:
		sum := 0.0
		return func() float64 {
			sum += float64(random.ExpFloat64() * n)
			return sum
		}
	case Periodic:
		phase, turn := random.Float64(), -1.0
		return func() float64 {
			turn++
			shift := float64(p.Jitter * (float64(2*random.Float64()) - 1))
			return (phase + turn + shift) * n
		}
	}
	turn := -1.0
	return func() float64 {
		turn++
		return float64(agent) + float64(turn*n)
	}
}

func (p Plan) at(position float64) time.Duration {
	ns := math.Round(float64(position/p.Rate) * 1e9)
	if ns > float64(math.MaxInt64/4) {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// Expected returns how many requests the plan has: exactly for constant arrivals and bursts, and on average for the
// others.
func (p Plan) Expected() float64 {
	switch p.Arrivals {
	case Waves:
		waves := 1 + int((p.Length-1)/max(p.Every, 1))
		return float64(min(p.Agents, waves*p.AtOnce))
	case Burst:
		bursts := 1.0
		if p.Every > 0 {
			bursts = math.Ceil(p.Length.Seconds() / p.Every.Seconds())
		}
		return bursts * float64(p.Agents)
	}
	sum := p.Rate * p.Length.Seconds()
	if p.Opening {
		sum += float64(p.Agents)
	}
	return sum
}

// Scheduled reports whether arrivals are at given times, and have no rate.
func (p Plan) Scheduled() bool { return p.Arrivals == Burst || p.Arrivals == Waves }

type kindDrawer struct {
	random *rand.Rand
	mix    []int
}

func (d kindDrawer) next() int32 {
	total := 0
	for _, w := range d.mix {
		total += w
	}
	if total <= 0 {
		return 0
	}
	at := d.random.IntN(total)
	for kind, w := range d.mix {
		if at -= w; at < 0 {
			return int32(kind)
		}
	}
	return 0
}

// Backoff gives the pauses of an agent whose requests fail.
type Backoff struct {
	next   time.Duration
	random *rand.Rand
}

// These are the pauses of client-go's reflectors (defaultBackoffInit and defaultBackoffMax of
// k8s.io/client-go/tools/cache). Each is twice as long as the previous one, and up to twice as long as that by chance.
const (
	firstBackoff = 800 * time.Millisecond
	mostBackoff  = 30 * time.Second
)

// Backoff returns the backoff of an agent in a block.
func (p Plan) Backoff(agent int) *Backoff {
	return &Backoff{next: firstBackoff, random: p.random(agent, streamBackoff)}
}

// Next returns how long to wait after a failure.
func (b *Backoff) Next() time.Duration {
	pause := b.next
	b.next = min(2*b.next, mostBackoff)
	return pause + time.Duration(b.random.Float64()*float64(pause))
}
