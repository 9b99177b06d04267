package storm

import (
	"context"
	"time"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/shard"
	"github.com/authzconf/authzconf/reports/load/run"
)

// used is what the programs behind a side have used so far.
func (r *runner) used(s *server) map[string]run.Cost {
	all := map[string]run.Cost{}
	note := func(name string, cpu time.Duration, rss int64) {
		if cpu > 0 {
			all[name] = run.Cost{CPU: run.Duration(cpu), RSS: rss}
		}
	}
	cpu, rss := s.used()
	note(run.APIServer, cpu, rss)
	cpu, rss = r.recorder.used()
	note(run.Authorizer, cpu, rss)
	for _, other := range r.servers { // one of them has the etcd of all
		cpu, rss = shard.Used(other.targets[0].PIDs().Etcd)
		note(run.Etcd, cpu, rss)
	}
	return all
}

// measureIdle measures what the programs use while nobody asks.
func (r *runner) measureIdle(ctx context.Context) {
	took := min(profile.CacheLife, r.Profile.Block)
	before := map[profile.Server]map[string]run.Cost{}
	for name, s := range r.servers {
		before[name] = r.used(s)
	}
	select {
	case <-ctx.Done():
	case <-time.After(took):
	}
	r.idle = map[profile.Server]map[string]run.Cost{}
	for name, s := range r.servers {
		r.idle[name] = map[string]run.Cost{}
		for program, c := range r.used(s) {
			idle := c.CPU - before[name][program].CPU
			r.idle[name][program] = run.Cost{Idle: idle * run.Duration(r.Profile.Block) / run.Duration(took)}
		}
	}
}

// cost is what the programs have used since, and what of it they use without requests.
func (r *runner) cost(s *server, before map[string]run.Cost) map[string]run.Cost {
	all := r.used(s)
	for name, c := range all {
		c.CPU, c.Idle = c.CPU-before[name].CPU, r.idle[s.name][name].Idle
		all[name] = c
	}
	return all
}

// runtimeCost adds what the API servers say of themselves, and their processor time where nobody else knows it.
func runtimeCost(b *run.Block, increased []sample) {
	c, known := b.Cost[run.APIServer]
	for _, s := range increased {
		switch s.family {
		case "go_memstats_alloc_bytes_total":
			c.Allocated += int64(s.value)
		case heapSys:
			c.PeakHeap += int64(s.value)
		case "go_gc_duration_seconds_count":
			c.GCs += int64(s.value)
		case "process_cpu_seconds_total":
			if !known {
				c.CPU += run.Duration(s.value * float64(time.Second))
			}
		}
	}
	b.Cost[run.APIServer] = c
}

// checked are the checks as the API server counts them, where nobody else does: those of impersonation by mode, and
// all others that were allowed.
func checked(b *run.Block, increased []sample) (list []run.ReviewCount) {
	rest := int64(0)
	for _, s := range increased {
		if s.family == decisions && s.labels["decision"] == "allowed" {
			rest += int64(s.value)
		}
	}
	for _, a := range b.Attempts {
		c := run.ReviewCount{Mode: a.Mode, Decision: "NoOpinion", Count: int64(a.Count)}
		if a.Decision == "allowed" {
			c.Decision = "Allow"
			rest -= c.Count
		}
		list = append(list, c)
	}
	return append(list, run.ReviewCount{Mode: "request", Decision: "Allow", Count: rest})
}
