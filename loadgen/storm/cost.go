package storm

import (
	"time"

	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

func (r *runner) measureUse(s *controlPlane) map[string]run.Cost {
	all := map[string]run.Cost{}
	note := func(name string, cpu time.Duration, rss int64) {
		if cpu > 0 {
			all[name] = run.Cost{CPU: run.Duration(cpu), RSS: rss}
		}
	}
	cpu, rss := s.measureUse()
	note(run.APIServer, cpu, rss)
	cpu, rss = r.recorder.measureUse()
	note(run.Authorizer, cpu, rss)
	for _, other := range r.servers { // one of them has the etcd of all
		cpu, rss = shard.Used(other.targets[0].PIDs().Etcd)
		note(run.Etcd, cpu, rss)
	}
	return all
}

// measureCost returns what the programs have used since, and which part of it they use without requests.
func (r *runner) measureCost(s *controlPlane, before map[string]run.Cost) map[string]run.Cost {
	all := r.measureUse(s)
	for name, c := range all {
		c.CPU, c.Idle = c.CPU-before[name].CPU, r.idle[s.name][name].Idle
		all[name] = c
	}
	return all
}

// cpuSeconds is a counter of every Go program.
const cpuSeconds = "process_cpu_seconds_total"

// addRuntimeCost adds what the API servers report about themselves, and their processor time if it is not known
// otherwise.
func addRuntimeCost(b *run.Block, increased []sample, idle run.Duration) {
	c, known := b.Cost[run.APIServer]
	for _, s := range increased {
		switch s.family {
		case "go_memstats_alloc_bytes_total":
			c.Allocated += int64(s.value)
		case heapSys:
			c.PeakHeap += int64(s.value)
		case "go_gc_duration_seconds_count":
			c.GCs += int64(s.value)
		case cpuSeconds:
			if !known {
				c.CPU += run.Duration(s.value * float64(time.Second))
				c.Idle = idle
			}
		}
	}
	b.Cost[run.APIServer] = c
}
