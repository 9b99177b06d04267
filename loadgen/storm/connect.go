package storm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

// MaxShards is how many shards there may be.
const MaxShards = 64

// can returns what the clusters of the run can do.
func (o *Options) can() clusters.Capabilities {
	return providers.CapabilitiesOf(cmp.Or(o.Provider, providers.Default()))
}

func hasNodes(can clusters.Capabilities) bool  { return can.Nodes }
func isForeign(can clusters.Capabilities) bool { return can.Foreign }
func runsPods(can clusters.Capabilities) bool  { return can.Nodes || can.Foreign }
func restarts(can clusters.Capabilities) bool  { return can.SeveralServers && can.Processes }

// suitable names the providers whose clusters can do something.
func suitable(can func(clusters.Capabilities) bool) string {
	return strings.Join(providers.Names(can), " or ")
}

// Check says what cannot be, by the flags that say it.
func (o *Options) Check() error {
	can, engine := o.can(), cmp.Or(o.Engine, Processes)
	known := can != clusters.Capabilities{}
	var problem string
	switch {
	case o.Shards < 1 || o.Shards > min(o.Profile.Agents(), MaxShards):
		problem = fmt.Sprintf("--shards %d: expected 1 to %d, and no more than the %d agents", o.Shards, MaxShards, o.Profile.Agents())
	case !known:
		problem = fmt.Sprintf("--provider %q: expected %s", o.Provider, providers.Known())
	case engine != Processes && engine != Pods:
		problem = fmt.Sprintf("--engine %q: expected %s or %s", engine, Processes, Pods)
	case engine == Pods && !runsPods(can):
		problem = fmt.Sprintf("--engine %s: a local control plane runs no pods, and pods do not reach it: expected --provider %s beside it", Pods, suitable(runsPods))
	case !restarts(can) && o.eventful():
		problem = fmt.Sprintf("the profile %s restarts API servers, or has several: expected --provider %s", o.Profile.Name, suitable(restarts))
	case o.NodeImage != "" && !can.Nodes:
		problem = "--kind-node-image is for --provider " + suitable(hasNodes)
	case o.forForeign() && !can.Foreign:
		problem = "--image, --api-servers and --node-objects kwok are for --provider " + suitable(isForeign)
	case o.Image != "" && engine != Pods:
		problem = fmt.Sprintf("--image is what pods run: expected --engine %s beside it", Pods)
	case can.Foreign:
		problem = o.checkExisting()
	}
	if problem == "" {
		return nil
	}
	return &usage.Error{Problem: problem}
}

// eventful reports whether the profile restarts API servers, or has several behind a balancer.
func (o *Options) eventful() bool {
	return o.Profile.APIServers > 1 || o.Profile.Event.Kind != profile.NoEvent
}

// forForeign reports whether there is an option that only a foreign cluster has a use for.
func (o *Options) forForeign() bool { return o.Image != "" || o.Kwok || len(o.APIServers) > 0 }

func (o *Options) checkFiles() error {
	if o.Engine == Pods {
		return nil // a pod has a limit of its own, and looks at it
	}
	// Every shard has its part of the connections to each server, a server has all that are made to it.
	servers := len(o.Profile.Servers())
	mine := (o.Profile.Connections() + o.Shards - 1) / o.Shards * servers
	if err := agent.CheckFiles(max(mine, o.Profile.Connections())); err != nil {
		return &usage.Error{Problem: err.Error()}
	}
	return nil
}

// connect makes the agents, opens their connections, and compares clocks. Servers that share storage share the agents.
func (r *runner) connect(ctx context.Context) error {
	names, each := r.Profile.Servers(), 1
	if r.sharedStorage() {
		each = len(names)
	}
	for group := range slices.Chunk(names, each) {
		g, err := r.generator(ctx, group)
		if g != nil {
			r.generators = append(r.generators, g)
		}
		if err != nil {
			return err
		}
		for _, name := range group {
			r.servers[name].generator = g
		}
		r.clocks(ctx, g, -1)
	}
	return nil
}

func (r *runner) generator(ctx context.Context, names []profile.Server) (shard.Generator, error) {
	endpoints := map[profile.Server]shard.Endpoint{}
	for _, name := range names {
		admin, anonymous := r.servers[name].credentials()
		if err := rest.LoadTLSFiles(anonymous); err != nil {
			return nil, err
		}
		endpoint := shard.Endpoint{Host: anonymous.Host, CA: anonymous.CAData}
		if r.Engine == Pods {
			hosts, err := apiServers(ctx, admin)
			if err != nil {
				return nil, err
			}
			if len(hosts) == 0 {
				return nil, fmt.Errorf("where pods reach the API server: the Service kubernetes has no endpoint")
			}
			endpoint.Host = "https://" + hosts[0]
		}
		endpoints[name] = endpoint
	}
	var jobs []shard.Job
	for i := range r.Shards {
		jobs = append(jobs, shard.Job{Index: i, Count: r.Shards, Profile: *r.Profile, Servers: endpoints, Tokens: r.servers[names[0]].population.Tokens})
	}
	switch {
	case r.Engine == Pods:
		return r.pods(ctx, r.servers[names[0]], jobs)
	case r.Shards > 1:
		group, err := shard.Start(ctx, shard.Processes(r.Command), jobs)
		if err != nil {
			return nil, err
		}
		return group, nil
	}
	worker, err := shard.NewWorker(jobs[0])
	if err != nil {
		return nil, &usage.Error{Problem: err.Error()}
	}
	return worker, worker.Open(ctx)
}

// pods runs the shards in the cluster that they storm: what they cost the machine is then the same for all servers.
func (r *runner) pods(ctx context.Context, s *controlPlane, jobs []shard.Job) (shard.Generator, error) {
	if r.Image == "" {
		if err := shard.LoadImage(ctx, s.targets[0]); err != nil {
			return nil, err
		}
	}
	admin, _ := s.credentials()
	begin := time.Now()
	launcher, err := shard.CreatePods(ctx, admin, len(jobs), jobLife(r.Profile), r.Image)
	if err != nil {
		return nil, err
	}
	group, err := shard.Start(ctx, launcher, jobs) // which closes the launcher on an error
	if err != nil {
		return nil, err
	}
	r.Said(fmt.Sprintf("%s: %d shards in pods are ready after %.1f s", s.name, len(jobs), time.Since(begin).Seconds()))
	return group, nil
}

// jobLife is longer than a run takes, with the pauses in which servers forget.
func jobLife(p *profile.Profile) time.Duration {
	return 2*p.Length() + time.Duration(2*p.Pairs*len(p.Comparisons))*profile.CacheLife + time.Hour
}

// apiServers are where pods reach the API servers: the endpoints of the Service kubernetes, without a proxy between.
func apiServers(ctx context.Context, admin *rest.Config) (hosts []string, err error) {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		return nil, fmt.Errorf("where pods reach the API server: %w", err)
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				if len(e.Addresses) > 0 && p.Port != nil {
					hosts = append(hosts, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	return hosts, nil
}

// clocks compares the clocks of shards with this process's, and keeps for each what differs most. block is where a
// problem belongs, -1 for the whole run.
func (r *runner) clocks(ctx context.Context, g shard.Generator, block int) {
	all, err := g.Clocks(ctx)
	if err != nil && ctx.Err() == nil {
		r.problem(block, "%v", err)
	}
	for _, c := range all {
		i := slices.IndexFunc(r.out.Clocks, func(k run.Clock) bool { return k.Shard == c.Shard })
		if i < 0 {
			r.out.Clocks = append(r.out.Clocks, c)
		} else if time.Duration(c.Offset).Abs() > time.Duration(r.out.Clocks[i].Offset).Abs() {
			r.out.Clocks[i] = c
		}
	}
}

// question is what the recorder's process is asked, one at a time; answer what it says.
type (
	question struct {
		Kubeconfig recorder.Point `json:",omitempty"`
		Since      *uint64        `json:",omitempty"`
		Users      []string       `json:",omitempty"`
		Count      *counting      `json:",omitempty"` // from now on, in place of keeping records
		Read       bool           `json:",omitempty"`
		Profile    bool           `json:",omitempty"` // itself from now on, until Profiled
		Profiled   bool           `json:",omitempty"`
	}
	answer struct {
		Kubeconfig []byte
		Mark       uint64
		Records    []recorder.Record
		Counted    tallies
		Profile    []byte
		CPU        time.Duration
		RSS        int64
		Error      string
	}
)

// ServeRecorder is the recorder as a process, until in ends: its costs must not be taken for the generator's.
func ServeRecorder(_ context.Context, in io.Reader, out io.Writer) error {
	r, err := recorder.Start(recorder.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	counted, decoder, encoder := newReviews(time.Now()), json.NewDecoder(in), json.NewEncoder(out)
	var profiled bytes.Buffer
	for {
		var q question
		if decoder.Decode(&q) != nil {
			return nil // whoever asks has ended
		}
		a := answer{Mark: r.Mark()}
		switch {
		case q.Kubeconfig != "":
			a.Kubeconfig = r.Kubeconfig(q.Kubeconfig)
		case q.Since != nil:
			a.Records = r.Since(*q.Since, q.Users...)
		case q.Count != nil:
			counted = newReviews(q.Count.Start)
			r.Count(counted.counting(*q.Count, nil))
		case q.Read:
			a.Counted = counted.soFar()
		case q.Profile:
			profiled.Reset()
			err = pprof.StartCPUProfile(&profiled)
		case q.Profiled:
			pprof.StopCPUProfile()
			a.Profile = profiled.Bytes()
		}
		a.CPU, a.RSS = shard.Used(os.Getpid())
		if err := cmp.Or(err, r.Err()); err != nil {
			a.Error = err.Error()
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

type recorderProcess struct {
	link    *shard.Link
	timeout time.Duration // after which one that does not answer is killed
	mu      sync.Mutex
	encoder *json.Encoder
	decoder *json.Decoder
	failed  error
}

const recorderTimeout = 30 * time.Second

func startRecorder(ctx context.Context, command []string) (*recorderProcess, error) {
	link, err := shard.Processes(command).Launch(ctx, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("the recorder: %w", err)
	}
	return &recorderProcess{link: link, timeout: recorderTimeout, encoder: json.NewEncoder(link.In), decoder: json.NewDecoder(link.Out)}, nil
}

// ask returns nothing once the process has failed; Err says why.
func (p *recorderProcess) ask(q question) (a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return a
	}
	kill := time.AfterFunc(p.timeout, p.link.Kill)
	defer kill.Stop()
	err := p.encoder.Encode(q)
	if err == nil {
		err = p.decoder.Decode(&a)
	}
	if err != nil {
		p.failed = fmt.Errorf("its process is gone, or did not answer within %s: %w", p.timeout, err)
	} else if a.Error != "" {
		p.failed = fmt.Errorf("%s", a.Error)
	}
	return a
}

func (p *recorderProcess) Mark() uint64 { return p.ask(question{}).Mark }

func (p *recorderProcess) Since(mark uint64, users ...string) []recorder.Record {
	return p.ask(question{Since: &mark, Users: users}).Records
}

// Reset implements server.Recording: in a storm nothing is kept that could be forgotten.
func (p *recorderProcess) Reset() {}

func (p *recorderProcess) Kubeconfig(point recorder.Point) []byte {
	return p.ask(question{Kubeconfig: point}).Kubeconfig
}

func (p *recorderProcess) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *recorderProcess) used() (time.Duration, int64) {
	if p == nil {
		return 0, 0
	}
	a := p.ask(question{})
	return a.CPU, a.RSS
}

func (p *recorderProcess) close() error {
	kill := time.AfterFunc(10*time.Second, p.link.Kill)
	defer kill.Stop()
	_ = p.link.In.Close()
	_, _ = io.Copy(io.Discard, p.link.Out)
	return p.link.Wait()
}

func (r *runner) count(s *controlPlane, start time.Time, delayed bool) (read func() tallies) {
	c := counting{Start: start}
	if delayed {
		c.Delay, c.Sigma, c.Concurrency = r.Profile.WebhookDelay, r.Profile.Authorizer.Sigma, r.Profile.Authorizer.Concurrency
	}
	switch {
	case r.alone():
		return func() tallies { return tallies{} }
	case r.recorder != nil:
		r.recorder.ask(question{Count: &c})
		return func() tallies { return r.recorder.ask(question{Read: true}).Counted }
	}
	counted := newReviews(start)
	for _, t := range s.targets {
		t.Count(counted.counting(c, s.others()))
	}
	return counted.soFar
}
