package storm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters/balancer"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/population"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
	"github.com/authzconf/authzconf/verdicts"
)

// controlPlane is a side's control plane: one API server, or several behind a balancer.
type controlPlane struct {
	name     profile.Server
	targets  []*server.Server
	balancer *balancer.Balancer // nil for a single one
	// attempts means that it counts checks of impersonation.
	attempts bool
	// each is where several API servers of an existing cluster are read. known is when those that are read began.
	each  []*rest.Config
	known []string
	// population is who takes part, and generator is what sends. Both may also be those of the other server.
	population *population.Population
	generator  shard.Generator
	// history predicts what its authorizer is asked.
	history *population.History
	// ownReviews returns the reviews of requests themselves since the counting began, by their texts, or nil if nobody sees
	// them.
	ownReviews func() map[string]run.OwnReview
	// spentBefore and countedBefore are what API servers had used and counted when they were restarted.
	spentBefore   time.Duration
	countedBefore counters
}

// start starts the servers. Local ones share one etcd, so that they have the same objects and accept the same tokens.
// Only one side is under load at a time.
func (r *runner) start(ctx context.Context) error {
	if !server.HasGate(r.Release.Version) {
		return &usage.Error{Problem: fmt.Sprintf("Kubernetes %s has no feature gate %s", r.Release.Minor, server.GateName)}
	}
	if len(r.RecorderCommand) > 0 && r.can().Processes && !r.serverCounts() {
		var err error
		if r.recorder, err = startRecorder(ctx, r.RecorderCommand, recorderTimeout); err != nil {
			return err
		}
	}
	var first *server.Server
	for _, name := range r.Profile.Servers() {
		s, err := r.startServer(ctx, name, first)
		if err != nil {
			return err
		}
		if first == nil && r.sharedStorage() {
			first = s.targets[0]
		}
	}
	return nil
}

// startServer starts the API servers of a control plane, which share the etcd of the first one, if there is one.
func (r *runner) startServer(ctx context.Context, name profile.Server, first *server.Server) (*controlPlane, error) {
	history, err := population.NewHistory(r.Profile, name, r.Release.Version)
	if err != nil {
		return nil, err
	}
	s := &controlPlane{name: name, countedBefore: counters{}, history: history}
	r.servers[name] = s
	for i := range r.Profile.APIServers {
		o := r.options(name, first)
		if !r.can().Foreign {
			o.Cell.Name = cellName(name, i)
		}
		t, err := server.Start(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", name, err)
		}
		s.targets = append(s.targets, t)
		s.attempts = slices.Contains(server.ExpectedFacts(r.options(name, nil)).Capabilities, "metrics")
		if first == nil && r.sharedStorage() {
			first = t
		}
		r.mismatches(-1, name, t.Witness.Mismatches)
	}
	if r.can().Foreign {
		if err := r.claim(ctx, s); err != nil {
			return nil, err
		}
	}
	w := s.targets[0].Witness
	r.out.Servers = append(r.out.Servers, run.Server{
		Name: string(name), GitVersion: w.GitVersion, Emulated: w.EmulatedVersion, Gate: s.targets[0].Facts.Gate,
		WebhookDelay: run.Duration(r.Profile.WebhookDelay), Mismatches: w.Mismatches,
	})
	if len(s.targets) > 1 {
		s.balancer, err = balancer.Start(s.backends(nil)...)
	}
	return s, err
}

// cellName returns the name of an API server of a side. Those behind a balancer have a letter each.
func cellName(name profile.Server, number int) string {
	if number == 0 {
		return string(name)
	}
	return string(name) + "-" + string(rune('a'+number))
}

// CellNames returns the names of the API servers of a run.
func (o *Options) CellNames() (names []string) {
	for _, name := range o.Profile.Servers() {
		for i := range o.Profile.APIServers {
			names = append(names, cellName(name, i))
		}
	}
	return names
}

func (r *runner) options(name profile.Server, join *server.Server) server.Options {
	if r.can().Foreign {
		return r.Existing
	}
	o := server.Options{
		Cell:        verdicts.Cell{Name: string(name), Provider: r.Provider, Kubernetes: r.Release.Version, Gate: name.Gate()},
		Release:     r.Release,
		Binaries:    r.Binaries,
		NodeImage:   r.NodeImage,
		NoAudit:     true,
		KeepMetrics: []string{server.ObjectivesMetric},
		Join:        join,
		Cached:      r.Profile.Authorizer.Cache,
	}
	if r.recorder != nil {
		o.Elsewhere = r.recorder
	}
	if r.serverCounts() {
		o.Plain = &server.Plain{Args: server.Args(server.ObjectivesMetric)}
	}
	return o
}

// serverCounts reports whether the only authorizer is RBAC, so that only the API server counts.
func (r *runner) serverCounts() bool { return r.Profile.Authorizer.Kind == profile.RBAC }

func (r *runner) mismatches(block int, name profile.Server, list []string) {
	for _, m := range list {
		r.problem(block, "%s is not what was asked for: %s", name, m)
	}
}

func (s *controlPlane) backends(without *server.Server) (hosts []string) {
	for _, t := range s.targets {
		if t != without {
			hosts = append(hosts, strings.TrimPrefix(t.Anonymous().Host, "https://"))
		}
	}
	return hosts
}

// credentials returns the credentials of server.Target, through the balancer if there is one.
func (s *controlPlane) credentials() (admin, anonymous *rest.Config) {
	admin, anonymous = s.targets[0].Admin(), s.targets[0].Anonymous()
	if s.balancer != nil {
		anonymous.Host = "https://" + s.balancer.Addr()
	}
	return admin, anonymous
}

func (s *controlPlane) measureUse() (cpu time.Duration, rss int64) {
	cpu = s.spentBefore
	for _, t := range s.targets {
		used, resident := shard.Used(t.PIDs().KubeAPIServer)
		cpu, rss = cpu+used, rss+resident
	}
	return cpu, rss
}

func (s *controlPlane) err() error {
	for _, t := range s.targets {
		if err := t.Err(); err != nil {
			return err
		}
	}
	return nil
}

// restart restarts all API servers, one after the other. Connections that the balancer has passed on to one end with
// it.
func (s *controlPlane) restart(ctx context.Context) error {
	for _, t := range s.targets {
		counts, err := read(t, scraped) // what comes between this and its end is lost
		if err != nil {
			return err
		}
		maps.DeleteFunc(counts, func(_ string, c sample) bool { return c.family == heapSys }) // the heap ends with its process
		cpuTime, _ := shard.Used(t.PIDs().KubeAPIServer)
		if s.balancer != nil {
			s.balancer.Set(s.backends(t)...)
		}
		if err := t.Renew(ctx); err != nil {
			return fmt.Errorf("%s did not come back after its restart: %w", s.name, err)
		}
		if s.balancer != nil {
			s.balancer.Set(s.backends(nil)...)
		}
		s.spentBefore += cpuTime
		s.countedBefore.add(counts)
	}
	return nil
}

// event does to a server what the profile says for the block that begins at start. The result waits until that is over.
func (r *runner) event(ctx context.Context, i int, s *controlPlane, start time.Time) (over func() error) {
	if r.Profile.Event.Kind == profile.NoEvent {
		return func() error { return nil }
	}
	ended := make(chan error, 1)
	go func() {
		select {
		case <-ctx.Done():
			ended <- nil
		case <-time.After(time.Until(start.Add(r.Profile.Event.After))):
			ended <- s.restart(ctx)
		}
	}()
	return func() error {
		err := <-ended
		for _, t := range s.targets {
			r.mismatches(i, s.name, t.Witness.Mismatches)
		}
		return err
	}
}
