package storm

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
	"github.com/authzconf/authzconf/loadgen/shard"
)

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

// generator makes the generator for some servers, and opens its connections.
func (r *runner) generator(ctx context.Context, names []profile.Server) (shard.Generator, error) {
	endpoints := map[profile.Server]shard.Endpoint{}
	for _, name := range names {
		endpoint, err := r.endpoint(ctx, r.servers[name])
		if err != nil {
			return nil, err
		}
		endpoints[name] = endpoint
	}
	var jobs []shard.Job
	for i := range r.Shards {
		jobs = append(jobs,
			shard.Job{Index: i, Count: r.Shards, Profile: *r.Profile, Servers: endpoints, Tokens: r.servers[names[0]].population.Tokens},
		)
	}
	switch {
	case r.Engine == Pods:
		return r.pods(ctx, r.servers[names[0]], jobs[0])
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

// endpoint returns where agents reach a server, from this machine or from a pod. Pods reach each of its API servers.
func (r *runner) endpoint(ctx context.Context, s *controlPlane) (e shard.Endpoint, err error) {
	admin, anonymous := s.credentials()
	if err := rest.LoadTLSFiles(anonymous); err != nil {
		return e, err
	}
	e = shard.Endpoint{Hosts: []string{anonymous.Host}, CA: anonymous.CAData}
	if r.Engine != Pods {
		return e, nil
	}
	hosts, err := listAPIServers(ctx, admin)
	if err == nil && len(hosts) == 0 {
		err = fmt.Errorf("where pods reach the API server: the Service kubernetes has no endpoint")
	}
	if err != nil {
		return e, err
	}
	e.Hosts = nil
	for _, host := range hosts {
		e.Hosts = append(e.Hosts, "https://"+host)
	}
	return e, nil
}

// pods runs the shards in the cluster that they storm, so that their cost is the same for all servers. plan is what all
// of them have to know.
func (r *runner) pods(ctx context.Context, s *controlPlane, plan shard.Job) (shard.Generator, error) {
	if r.Image == "" {
		if err := shard.LoadImage(ctx, s.targets[0]); err != nil {
			return nil, err
		}
	}
	admin, _ := s.credentials()
	pods, err := shard.CreatePods(ctx, admin, plan, r.Image)
	if err != nil {
		return nil, err
	}
	r.Say(fmt.Sprintf("%s: each block is a Job of %d pods, created %.1f s before it begins", s.name, plan.Count, pods.Lead().Seconds()))
	return pods, nil
}

// listAPIServers returns where pods reach the API servers: the endpoints of the Service kubernetes, without a proxy
// between.
func listAPIServers(ctx context.Context, admin *rest.Config) (hosts []string, err error) {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	slices, err := client.DiscoveryV1().
		EndpointSlices(metav1.NamespaceDefault).
		List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
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

// clocks compares the clocks of shards with this process's, and keeps the largest difference of each. block is the
// block to which a problem belongs, or -1 for the whole run.
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
