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

	profiles "github.com/google/pprof/profile"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// takeProfiles makes the programs profile themselves in the last block of a side in which no server is restarted. A
// profile costs a little, and the same on both sides. The returned function waits for the profiles. If one is not
// available, that is reported, and is not a problem of the run.
func (r *runner) takeProfiles(ctx context.Context, i int, s *controlPlane, start time.Time) (taken func() map[string]run.CPUProfile) {
	isRepeated := slices.ContainsFunc(r.plan[i+1:], func(p plannedBlock) bool { return p.side == r.plan[i].side })
	if isRepeated || r.Profile.Event.Kind != profile.NoEvent {
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
				out[program], err = sumFunctions(bytes.NewReader(raw))
			}
			if err != nil {
				delete(out, program)
				r.Say(fmt.Sprintf("no CPU profile of the %s: %v", program, err))
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

// sumFunctions counts in which functions a program was when the profile looked.
func sumFunctions(r io.Reader) (out run.CPUProfile, err error) {
	p, err := profiles.Parse(r)
	if err != nil {
		return out, err
	}
	values := map[string]int64{}
	for _, s := range p.Sample {
		out.Samples += s.Value[0] // the first is how often, the second how long
		if len(s.Location) > 0 && len(s.Location[0].Line) > 0 {
			values[s.Location[0].Line[0].Function.Name] += s.Value[0]
		}
	}
	names := slices.SortedFunc(
		maps.Keys(values),
		func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) },
	)
	out.Functions = map[string]int64{}
	for _, name := range names[:min(len(names), mostFunctions)] {
		out.Functions[name] = values[name]
	}
	return out, nil
}
