package storm

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

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
	balancer *balancer.Balancer // nil before a single one
	// attempts says whether it counts checks of impersonation.
	attempts bool
	// each is where several API servers of an existing cluster are read, and known when those that are read began.
	each  []*rest.Config
	known []string
	// population is who is there, and generator who sends: both may be those of the other server, too.
	population *population.Population
	generator  shard.Generator
	// history predicts what its authorizer is asked.
	history *population.History
	// spent and counted are what API servers had used and counted when they were restarted.
	spent   time.Duration
	counted counters
}

// start brings up the servers. Local ones share one etcd, so that they hold the same objects and accept the same
// tokens; only one side is under load at a time.
func (r *runner) start(ctx context.Context) error {
	if !server.GateKnown(r.Release.Version) {
		return &usage.Error{Problem: fmt.Sprintf("Kubernetes %s has no feature gate %s", r.Release.Minor, server.GateName)}
	}
	if len(r.RecorderCommand) > 0 && r.can().Processes && !r.alone() {
		var err error
		if r.recorder, err = startRecorder(ctx, r.RecorderCommand); err != nil {
			return err
		}
	}
	var first *server.Server
	for _, name := range r.Profile.Servers() {
		history, err := population.NewHistory(r.Profile, name, r.Release.Version)
		if err != nil {
			return err
		}
		s := &controlPlane{name: name, counted: counters{}, history: history}
		r.servers[name] = s
		for range r.Profile.APIServers {
			t, err := server.Start(ctx, r.options(name, first))
			if err != nil {
				return fmt.Errorf("starting %s: %w", name, err)
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
				return err
			}
		}
		w := s.targets[0].Witness
		r.out.Servers = append(r.out.Servers, run.Server{
			Name: string(name), GitVersion: w.GitVersion, Emulated: w.EmulatedVersion, Gate: string(s.targets[0].Facts.Gate),
			WebhookDelay: run.Duration(r.Profile.WebhookDelay), Mismatches: w.Mismatches,
		})
		if len(s.targets) > 1 {
			var err error
			if s.balancer, err = balancer.Start(s.backends(nil)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) options(name profile.Server, join *server.Server) server.Options {
	if r.can().Foreign {
		return r.Existing
	}
	gate := server.AskOff
	if name.Gate() == profile.GateOn {
		gate = server.AskOn
	}
	o := server.Options{
		Cell:    verdicts.Cell{Name: string(name), Provider: r.Provider, Kubernetes: r.Release.Version, Gate: string(gate)},
		Release: r.Release, Binaries: r.Binaries, NodeImage: r.NodeImage, NoAudit: true, Join: join, Cached: r.Profile.Authorizer.Cache,
	}
	if r.recorder != nil {
		o.Elsewhere = r.recorder
	}
	if r.alone() {
		o.Plain = &server.Plain{Args: server.Args()}
	}
	return o
}

// alone says whether there is no authorizer but RBAC, and nobody who counts but the API server.
func (r *runner) alone() bool { return r.Profile.Authorizer.Kind == profile.RBAC }

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

// credentials are those of server.Target, by way of the balancer if there is one.
func (s *controlPlane) credentials() (admin, anonymous *rest.Config) {
	admin, anonymous = s.targets[0].Admin(), s.targets[0].Anonymous()
	if s.balancer != nil {
		anonymous.Host = "https://" + s.balancer.Addr()
	}
	return admin, anonymous
}

func (s *controlPlane) used() (cpu time.Duration, rss int64) {
	cpu = s.spent
	for _, t := range s.targets {
		one, resident := shard.Used(t.PIDs().KubeAPIServer)
		cpu, rss = cpu+one, rss+resident
	}
	return cpu, rss
}

// read reads what all API servers have counted so far, also when the run is over: the last block is to be complete.
func (s *controlPlane) read() (counters, error) {
	all := counters{}
	all.add(s.counted)
	for _, admin := range s.each {
		c, err := unshared(context.Background(), admin, scraped...)
		if err != nil {
			return nil, err
		}
		all.add(c)
	}
	if len(s.each) > 0 {
		return all, nil
	}
	for _, t := range s.targets {
		c, err := read(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all.add(c)
	}
	return all, nil
}

func read(t *server.Server) (counters, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	families, err := t.Scrape(ctx, scraped...)
	if err != nil {
		return nil, err
	}
	return readCounters(families)
}

func (s *controlPlane) err() error {
	for _, t := range s.targets {
		if err := t.Err(); err != nil {
			return err
		}
	}
	return nil
}

// restart restarts all API servers, one after the other. What the balancer has passed on to one ends with it.
func (s *controlPlane) restart(ctx context.Context) error {
	for _, t := range s.targets {
		counted, err := read(t) // what comes between this and its end is lost
		if err != nil {
			return err
		}
		used, _ := shard.Used(t.PIDs().KubeAPIServer)
		if s.balancer != nil {
			s.balancer.Set(s.backends(t)...)
		}
		if err := t.Renew(ctx); err != nil {
			return fmt.Errorf("%s did not come back after its restart: %w", s.name, err)
		}
		if s.balancer != nil {
			s.balancer.Set(s.backends(nil)...)
		}
		s.spent += used
		s.counted.add(counted)
	}
	return nil
}

// event does to a server what the profile says of the block that begins at start. The result waits until that is over.
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

// levelYAML is the agents' priority level, and the FlowSchema that leads to it; both are called levelName.
//
//go:embed level.yaml
var levelYAML []byte

const (
	levelName    = "authzconf-storm"
	levelTimeout = time.Minute
)

// makeLevel makes the agents' own level of priority and fairness, and waits until every API server has it.
func (r *runner) makeLevel(ctx context.Context, s *controlPlane) error {
	client, err := kubernetes.NewForConfig(s.targets[0].Admin())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, levelTimeout, fmt.Errorf("the API server did not take over the priority level %s within %s", levelName, levelTimeout))
	defer cancel()
	var objects struct {
		Level  flowcontrolv1.PriorityLevelConfiguration
		Schema flowcontrolv1.FlowSchema
	}
	if err := yaml.UnmarshalStrict(levelYAML, &objects); err != nil {
		return err
	}
	objects.Level.Spec.Limited.NominalConcurrencyShares = new(int32(r.Profile.PriorityLevel.ConcurrencyShares))
	levels, schemas := client.FlowcontrolV1().PriorityLevelConfigurations(), client.FlowcontrolV1().FlowSchemas()
	if _, err = levels.Create(ctx, &objects.Level, metav1.CreateOptions{}); err == nil {
		_, err = schemas.Create(ctx, &objects.Schema, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return s.awaitLevel(ctx) // that of the other side, on the same etcd
	}
	if err != nil {
		return fmt.Errorf("creating the priority level of the agents: %w", err)
	}
	r.undo = append(r.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		return errors.Join(schemas.Delete(ctx, levelName, metav1.DeleteOptions{}), levels.Delete(ctx, levelName, metav1.DeleteOptions{}))
	})
	return s.awaitLevel(ctx)
}

// awaitLevel waits until all API servers have seats for the level. Their metrics say so, and nothing else does.
func (s *controlPlane) awaitLevel(ctx context.Context) error {
	const seats = flowControl + "nominal_limit_seats"
	for _, t := range s.targets {
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			families, err := t.Scrape(ctx, seats)
			return slices.ContainsFunc(families[seats].GetMetric(), func(m *dto.Metric) bool {
				return m.GetLabel()[0].GetValue() == levelName && m.GetGauge().GetValue() > 0
			}), err
		})
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	return nil
}
