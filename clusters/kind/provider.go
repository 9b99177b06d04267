package kind

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/image"
	"github.com/authzconf/authzconf/clusters/local"
)

// ProviderName is the name of this package's clusters for --provider.
const ProviderName = "kind"

// Provider creates clusters of kind.
type Provider struct {
	// Image is the node image. Empty is kindest/node of the version.
	Image string
	// ControlPlanes are the nodes of the control plane in addition to the first, with one API server each.
	ControlPlanes []Worker
	// Workers are the nodes in addition to the control plane. If there are none, one like the control plane is added,
	// because scenarios about nodes need two in all.
	Workers []Worker
}

// Name implements clusters.Provider.
func (Provider) Name() string { return ProviderName }

// Capabilities implements clusters.Provider.
func (Provider) Capabilities() clusters.Capabilities {
	return clusters.Capabilities{
		Recorder: true,
		AuditLog: true,
		Metrics:  true,
		Reload:   true,
		Restart:  true,
		Kill:     true,
		Members:  true,
		Nodes:    true,
	}
}

// Network implements clusters.Networked.
func (Provider) Network(ctx context.Context) (clusters.Network, error) {
	network, err := FindNetwork(ctx)
	if err != nil {
		return nil, err
	}
	return network, nil
}

// Prepare implements clusters.Preparer. It checks that there is an engine, and pulls the node images that are missing.
func (p Provider) Prepare(ctx context.Context, r clusters.Request) error {
	if _, err := FindNetwork(ctx); err != nil {
		return err
	}
	o, err := p.options(r).complete()
	if err != nil {
		return err
	}
	return o.checkImages(ctx)
}

// Create implements clusters.Provider.
func (p Provider) Create(ctx context.Context, r clusters.Request) (clusters.Cluster, error) {
	if r.Join != nil {
		return p.join(ctx, r)
	}
	cluster, err := Start(ctx, p.options(r))
	if err != nil {
		return nil, err // not a nil *Cluster in an interface that is not nil
	}
	return cluster, nil
}

// join makes an API server of a running cluster a target of its own.
func (p Provider) join(ctx context.Context, r clusters.Request) (clusters.Cluster, error) {
	cluster, isKind := r.Join.(*Cluster)
	if !isKind {
		return nil, errors.New("a node of kind cannot join a cluster elsewhere")
	}
	m, err := cluster.join(ctx, p.options(r))
	if err != nil {
		return nil, err // not a nil *member in an interface that is not nil
	}
	return m, nil
}

// Restart implements clusters.Restarter.
func (p Provider) Restart(ctx context.Context, c clusters.Cluster, r clusters.Request) (time.Duration, error) {
	switch cluster := c.(type) {
	case *Cluster:
		err := cluster.RestartAPIServer(ctx, func(o *Options) { *o = p.options(r) })
		return cluster.ReadyIn(), err
	case *member:
		err := cluster.restartMember(ctx, p.options(r))
		return cluster.ReadyIn(), err
	}
	return 0, errors.New("the API server of another cluster cannot be restarted as a static pod of kind")
}

// options requests the same API server as on a local control plane.
func (p Provider) options(r clusters.Request) Options {
	return Options{
		Name:          strings.ReplaceAll(r.Name, ".", "-"),
		Image:         p.Image,
		Version:       r.Version,
		Network:       r.Network,
		ControlPlanes: p.ControlPlanes,
		Workers:       p.workers(),
		Options: local.Options{
			EmulatedVersion: r.EmulatedVersion, FeatureGates: r.FeatureGates,
			AuthorizationConfig: r.AuthorizationConfig, AuditPolicy: r.AuditPolicy, AuditSink: r.AuditSink,
			KubeAPIServerArgs: namePlaces(r.Args), Files: r.Files, Keep: r.Keep,
		},
	}
}

func (p Provider) workers() []Worker {
	if len(p.Workers) == 0 {
		return make([]Worker, 1)
	}
	return p.Workers
}

// namePlaces makes the names of files absolute. The local API server runs in the folder of its files, and this one does
// not.
func namePlaces(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		name, file, _ := strings.Cut(a, "=")
		if strings.HasSuffix(name, "-file") && !strings.Contains(file, "/") {
			args[i] = name + "=" + local.DirPlaceholder + "/" + file
		}
	}
	return args
}

var (
	_ clusters.Networked     = Provider{}
	_ clusters.Preparer      = Provider{}
	_ clusters.Restarter     = Provider{}
	_ clusters.Reloader      = (*Cluster)(nil)
	_ clusters.CommandReader = (*Cluster)(nil)
	_ clusters.NodeReplacer  = (*Cluster)(nil)
	_ clusters.Several       = (*Cluster)(nil)
	_ clusters.Killer        = (*Cluster)(nil)
	_ clusters.Cluster       = (*member)(nil)
	_ image.Loader           = (*Cluster)(nil)
)
