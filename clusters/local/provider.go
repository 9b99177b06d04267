package local

import (
	"context"
	"errors"
	"time"

	"github.com/authzconf/authzconf/clusters"
)

// Name is the name of this package's control planes for --provider.
const Name = "local"

// Provider creates control planes: etcd and kube-apiserver as child processes.
type Provider struct {
	// Binaries, KubeAPIServerPath and KubeAPIServerEnv are those of Options.
	Binaries          *Binaries
	KubeAPIServerPath string
	KubeAPIServerEnv  []string
}

// Name implements clusters.Provider.
func (Provider) Name() string { return Name }

// Capabilities implements clusters.Provider.
func (Provider) Capabilities() clusters.Capabilities {
	return clusters.Capabilities{
		Recorder: true, AuditLog: true, Metrics: true,
		Reload: true, Restart: true, Kill: true, SeveralServers: true, Processes: true, Cheap: true,
	}
}

// Create implements clusters.Provider.
func (p Provider) Create(ctx context.Context, r clusters.Request) (clusters.Cluster, error) {
	o, err := p.options(r)
	if err != nil {
		return nil, err
	}
	plane, err := Start(ctx, o)
	if err != nil {
		return nil, err // not a nil *ControlPlane in an interface that is not nil
	}
	return plane, nil
}

// Prepare implements clusters.Preparer: it finds or builds the programs.
func (p Provider) Prepare(ctx context.Context, r clusters.Request) error {
	o, err := p.options(r)
	if err != nil {
		return err
	}
	if o, err = o.complete(); err != nil {
		return err
	}
	_, err = findPrograms(ctx, o)
	return err
}

func (p Provider) options(r clusters.Request) (o Options, err error) {
	o = Options{
		EmulatedVersion: r.EmulatedVersion, FeatureGates: r.FeatureGates,
		AuthorizationConfig: r.AuthorizationConfig, AuditPolicy: r.AuditPolicy, AuditSink: r.AuditSink,
		KubeAPIServerArgs: r.Args, Unchanged: r.Unchanged, Files: r.Files, Keep: r.Keep,
		Binaries: p.Binaries, KubeAPIServerPath: p.KubeAPIServerPath, KubeAPIServerEnv: p.KubeAPIServerEnv,
	}
	if o.Release, err = ParseRelease(r.Version); err != nil {
		return o, err
	}
	if o.KubeAPIServerPath == "" {
		if o.KubeAPIServerPath, err = p.Binaries.FindGivenAPIServer(r.Name); err != nil {
			return o, err
		}
	}
	if r.Join != nil {
		plane, isLocal := r.Join.(*ControlPlane)
		if !isLocal {
			return o, errors.New("a control plane of this machine cannot use the etcd of a cluster elsewhere")
		}
		o.Join = plane
	}
	return o, nil
}

// Restart implements clusters.Restarter.
func (p Provider) Restart(ctx context.Context, c clusters.Cluster, r clusters.Request) (time.Duration, error) {
	plane, isLocal := c.(*ControlPlane)
	if !isLocal {
		return 0, errors.New("the API server of a cluster elsewhere cannot be restarted as a process of this machine")
	}
	r.Join = nil // a restart keeps the existing etcd
	options, err := p.options(r)
	if err != nil {
		return 0, err
	}
	err = plane.RestartAPIServer(ctx, func(o *Options) { *o = options })
	return plane.ReadyIn(), err
}

var (
	_ clusters.Preparer      = Provider{}
	_ clusters.Restarter     = Provider{}
	_ clusters.Killer        = (*ControlPlane)(nil)
	_ clusters.Reloader      = (*ControlPlane)(nil)
	_ clusters.CommandReader = (*ControlPlane)(nil)
)
