package storm

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	pprof "github.com/google/pprof/profile"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

func (r *runner) used(s *controlPlane) map[string]run.Cost {
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

// measureIdle measures what the programs use while no agent asks. Where nobody but the API server counts, it goes on
// until what others ask is steady: controllers have to do with nodes and pods that are new.
func (r *runner) measureIdle(ctx context.Context) {
	rounds := slices.Repeat([]map[profile.Server]int64{nil}, steadyRounds)
	for len(rounds) < mostRounds && ctx.Err() == nil {
		now := r.idleOnce(ctx)
		if steady(rounds[len(rounds)-steadyRounds], now) && steady(rounds[len(rounds)-1], now) {
			r.noteOthers(now)
			return
		}
		rounds = append(rounds, now)
	}
	if ctx.Err() == nil {
		r.uneven("it changed in %d times %s before the first block", mostRounds-steadyRounds, r.idleLength())
	}
}

// mostRounds is how often others are counted until they are as they were one time and three times before: of nodes that are
// not ready controllers mark each pod, for minutes, and fewer and fewer.
const mostRounds, steadyRounds = 36, 3

// uneven says why the checks of agents' requests cannot be told from those of others: how many others ask changes. The
// checks of impersonation are still exact, for nobody else impersonates.
func (r *runner) uneven(format string, args ...any) {
	if r.out.OwnUnknown {
		return
	}
	text := "what others ask is not steady: " + fmt.Sprintf(format, args...) + "; so the checks of the requests themselves are not counted, those of impersonation alone"
	r.Said(text)
	r.out.OwnUnknown, r.out.Notes = true, append(r.out.Notes, text)
}

func (r *runner) idleLength() time.Duration { return min(profile.CacheLife, r.Profile.Block) }

// idleOnce watches once, and says how many checks of others each server allowed.
func (r *runner) idleOnce(ctx context.Context) map[profile.Server]int64 {
	took, checks := r.idleLength(), map[profile.Server]int64{}
	before, counted := map[profile.Server]map[string]run.Cost{}, map[profile.Server]counters{}
	for name, s := range r.servers {
		before[name] = r.used(s)
		var err error
		if counted[name], err = s.read(); err != nil {
			r.problem(-1, "before anybody asks: %v", err)
		}
	}
	if !clusters.Pause(ctx, took) {
		return nil
	}
	for _, name := range r.Profile.Servers() {
		s := r.servers[name]
		r.idle[name] = map[string]run.Cost{}
		for program, c := range r.used(s) {
			idle := c.CPU - before[name][program].CPU
			r.idle[name][program] = run.Cost{Idle: idle * run.Duration(r.Profile.Block) / run.Duration(took)}
		}
		after, err := s.read()
		if err != nil {
			r.problem(-1, "while nobody asks: %v", err)
			continue
		}
		if _, counts := after.of(decisions); r.alone() && !counts {
			r.problem(-1, "%s has answered, and does not count it: there is no %s among its metrics", name, decisions)
		}
		checks[name] = r.others(name, after.since(counted[name]))
	}
	return checks
}

// cost is what the programs have used since, and what of it they use without requests.
func (r *runner) cost(s *controlPlane, before map[string]run.Cost) map[string]run.Cost {
	all := r.used(s)
	for name, c := range all {
		c.CPU, c.Idle = c.CPU-before[name].CPU, r.idle[s.name][name].Idle
		all[name] = c
	}
	return all
}

// cpuSeconds is a counter of every Go program.
const cpuSeconds = "process_cpu_seconds_total"

// runtimeCost adds what the API servers say of themselves, and their processor time where nobody else knows it.
func runtimeCost(b *run.Block, increased []sample, idle run.Duration) {
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

// checked are the checks as the API server counts them, where nobody else does: those of impersonation by mode, and
// all others that were allowed, without those of the background. fewer says how many others asked less than that.
func checked(b *run.Block, increased []sample, background int64) (list []run.ReviewCount, fewer int64) {
	rest := -background
	for _, s := range increased {
		if s.family == decisions && s.labels["decision"] == "allowed" {
			rest += int64(s.value)
		}
	}
	for _, a := range b.Attempts {
		c := run.ReviewCount{ReviewKind: run.ReviewKind{Mode: a.Mode, Decision: "NoOpinion"}, Count: int64(a.Count)}
		if a.Decision == "allowed" {
			c.Decision = "Allow"
			rest -= c.Count
		}
		list = append(list, c)
	}
	b.Background = background
	return append(list, run.ReviewCount{ReviewKind: run.ReviewKind{Mode: run.RequestMode, Decision: "Allow"}, Count: max(0, rest)}), max(0, -rest)
}

// profiles has the programs profile themselves in the last block of a side, where no server is restarted: a profile
// costs a little, the same on both sides. The function that it returns waits for the profiles. One that cannot be had is
// said, and is no problem of the run.
func (r *runner) profiles(ctx context.Context, i int, s *controlPlane, start time.Time) (taken func() map[string]run.CPUProfile) {
	again := slices.ContainsFunc(r.plan[i+1:], func(p planned) bool { return p.side == r.plan[i].side })
	if again || r.Profile.Event.Kind != profile.NoEvent {
		return func() map[string]run.CPUProfile { return nil }
	}
	if r.recorder != nil {
		r.recorder.ask(question{Profile: true})
	}
	var server []byte
	var err error
	var done sync.WaitGroup
	done.Go(func() {
		time.Sleep(time.Until(start))
		server, err = fetchProfile(ctx, s.targets[0].Admin(), r.Profile.Block)
	})
	return func() map[string]run.CPUProfile {
		done.Wait()
		out := map[string]run.CPUProfile{}
		note := func(program string, raw []byte, err error) {
			if err == nil {
				out[program], err = flat(bytes.NewReader(raw))
			}
			if err != nil {
				delete(out, program)
				r.Said(fmt.Sprintf("no CPU profile of the %s: %v", program, err))
			}
		}
		note(run.APIServer, server, err)
		if r.recorder != nil {
			note(run.Authorizer, r.recorder.ask(question{Profiled: true}).Profile, nil)
		}
		return out
	}
}

func fetchProfile(ctx context.Context, admin *rest.Config, length time.Duration) ([]byte, error) {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	seconds := strconv.Itoa(max(1, int(length/time.Second)))
	return client.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).DoRaw(ctx)
}

const mostFunctions = 100

// flat counts in which functions a program was when the profile looked.
func flat(r io.Reader) (out run.CPUProfile, err error) {
	p, err := pprof.Parse(r)
	if err != nil {
		return out, err
	}
	seen := map[string]int64{}
	for _, s := range p.Sample {
		out.Samples += s.Value[0] // the first is how often, the second how long
		if len(s.Location) > 0 && len(s.Location[0].Line) > 0 {
			seen[s.Location[0].Line[0].Function.Name] += s.Value[0]
		}
	}
	names := slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return cmp.Or(cmp.Compare(seen[b], seen[a]), cmp.Compare(a, b)) })
	out.Functions = map[string]int64{}
	for _, name := range names[:min(len(names), mostFunctions)] {
		out.Functions[name] = seen[name]
	}
	return out, nil
}
