package pacer

import (
	"math"
	"slices"
	"testing"
	"time"
)

func plan(a Arrivals, change func(*Plan)) Plan {
	p := Plan{Arrivals: a, Agents: 10, Rate: 100, Length: 10 * time.Second, Mix: []int{8, 1, 1}, Seed: 7}
	if change != nil {
		change(&p)
	}
	return p
}

func plans() map[string]Plan {
	return map[string]Plan{
		"constant": plan(Constant, nil),
		"poisson":  plan(Poisson, nil),
		"periodic": plan(Periodic, func(p *Plan) { p.Jitter = 0.3 }),
		"burst":    plan(Burst, func(p *Plan) { p.Every = 3 * time.Second }),
		"once":     plan(Burst, nil),
		"waves":    plan(Waves, func(p *Plan) { p.Every, p.AtOnce = time.Second, 3 }),
		"opening":  plan(Periodic, func(p *Plan) { p.Opening = true }),
		"few":      plan(Constant, func(p *Plan) { p.Agents = 3 }),
	}
}

// TestStripes checks that the union of the stripes is the schedule, whatever the number of shards.
func TestStripes(t *testing.T) {
	for name, p := range plans() {
		t.Run(name, func(t *testing.T) {
			whole := p.Stripe(0, 1)
			if len(whole) == 0 {
				t.Fatal("no requests")
			}
			for _, shards := range []int{2, 3, 4, 7, 16} {
				var union []Send
				for i := range shards {
					stripe := p.Stripe(i, shards)
					for _, s := range stripe {
						if int(s.Agent)%shards != i {
							t.Fatalf("agent %d in stripe %d of %d", s.Agent, i, shards)
						}
					}
					union = append(union, stripe...)
				}
				Sort(union)
				if !slices.Equal(union, whole) {
					t.Errorf("%d shards: another schedule", shards)
				}
			}
			other := p
			other.Seed++
			if name != "once" && name != "waves" && slices.Equal(other.Stripe(0, 1), whole) {
				t.Error("another seed, the same schedule")
			}
		})
	}
}

// TestRates checks that the rate is the requested one, and that times are within the block.
func TestRates(t *testing.T) {
	for name, p := range plans() {
		t.Run(name, func(t *testing.T) {
			got := p.Stripe(0, 1)
			expected := p.Expected()
			exact := p.Arrivals == Constant || p.Arrivals == Burst
			if diff := math.Abs(float64(len(got)) - expected); exact && diff > 0 ||
				diff > 5*math.Sqrt(expected) {
				t.Errorf("%d requests, expected %v", len(got), expected)
			}
			for i, s := range got {
				if s.At < 0 ||
					s.At >= p.Length ||
					i > 0 && s.At < got[i-1].At {
					t.Fatalf("request %d is at %s", i, s.At)
				}
			}
		})
	}
}

func TestConstant(t *testing.T) {
	for i, s := range plan(Constant, nil).Stripe(0, 1) {
		if s.At != time.Duration(i)*10*time.Millisecond || int(s.Agent) != i%10 {
			t.Fatalf("request %d: agent %d at %s", i, s.Agent, s.At)
		}
	}
}

func TestPeriodic(t *testing.T) {
	const period = 100 * time.Millisecond
	last := map[int32]time.Duration{}
	for _, s := range plan(Periodic, func(p *Plan) { p.Jitter = 0.3 }).Stripe(0, 1) {
		before, seen := last[s.Agent]
		if gap := s.At - before; seen &&
			(gap < period*4/10-1 || gap > period*16/10+1) {
			t.Errorf("agent %d waits %s", s.Agent, gap)
		}
		last[s.Agent] = s.At
	}
	if len(last) != 10 {
		t.Errorf("%d agents", len(last))
	}
}

func TestPoissonPauses(t *testing.T) {
	p := plan(Poisson, func(p *Plan) { p.Rate, p.Agents = 2000, 50 })
	got := p.Stripe(0, 1)
	over := 0
	for i := 1; i < len(got); i++ {
		if got[i].At-got[i-1].At > time.Millisecond/2 { // the mean pause
			over++
		}
	}
	if part := float64(over) / float64(len(got)); math.Abs(part-math.Exp(-1)) > 0.02 {
		t.Errorf("%.3f of the pauses are longer than the mean, expected %.3f", part, math.Exp(-1))
	}
}

func TestBurst(t *testing.T) {
	count := map[time.Duration]int{}
	for _, s := range plan(Burst, func(p *Plan) { p.Every = 3 * time.Second }).Stripe(0, 1) {
		count[s.At]++
	}
	for _, at := range []time.Duration{0, 3 * time.Second, 6 * time.Second, 9 * time.Second} {
		if count[at] != 10 {
			t.Errorf("%d requests at %s, expected 10", count[at], at)
		}
	}
	if len(count) != 4 {
		t.Errorf("bursts at %v", count)
	}
}

func TestMix(t *testing.T) {
	count := [3]int{}
	p := plan(Constant, func(p *Plan) { p.Rate = 1000 })
	for _, s := range p.Stripe(0, 1) {
		count[s.Kind]++
	}
	for kind, want := range []int{8000, 1000, 1000} {
		if d := count[kind] - want; d < -200 || d > 200 {
			t.Errorf("kind %d: %d requests, expected about %d", kind, count[kind], want)
		}
	}
}

func BenchmarkStripe(b *testing.B) {
	p := plan(Poisson, func(p *Plan) { p.Agents, p.Rate = 5000, 1000 })
	for b.Loop() {
		p.Stripe(0, 1)
	}
}
