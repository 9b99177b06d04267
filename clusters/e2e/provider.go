// Package e2e offers authzconf's clusters to tests that are written with
// sigs.k8s.io/e2e-framework, as a support.E2EClusterProvider:
//
//	testenv.Setup(envfuncs.CreateCluster(e2e.NewLocal(e2e.Options{}), "authz"))
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/klient"
	"sigs.k8s.io/e2e-framework/support"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
)

// Options are what e2e-framework's own methods cannot say.
type Options struct {
	// FeatureGates are set on or off in kube-apiserver.
	FeatureGates map[string]bool
	// NodeImage is the node image of a kind cluster; empty is kindest/node of the
	// version. Workers is how many nodes it has beside the control plane.
	NodeImage string
	Workers   int
}

// Provider makes one cluster. It implements support.E2EClusterProvider.
type Provider struct {
	options Options
	kind    bool
	name    string
	version string

	cluster    clusters.Cluster
	kubeconfig string
}

var _ support.E2EClusterProvider = &Provider{}

// NewLocal provides control planes without nodes: etcd and kube-apiserver as child processes.
func NewLocal(o Options) *Provider { return (&Provider{options: o}).defaults() }

// NewKind provides clusters of kind.
func NewKind(o Options) *Provider { return (&Provider{options: o, kind: true}).defaults() }

func (p *Provider) defaults() *Provider {
	if p.version == "" {
		releases := local.Releases()
		p.version = releases[len(releases)-1].Minor
	}
	return p
}

// WithName sets a part of the cluster's name.
func (p *Provider) WithName(name string) support.E2EClusterProvider {
	p.name = name
	return p
}

// WithVersion sets the version of Kubernetes, such as 1.36.
func (p *Provider) WithVersion(version string) support.E2EClusterProvider {
	p.version = strings.TrimPrefix(version, "v")
	return p
}

// WithPath has no effect: kind is a library here, and the programs of a local
// control plane are found as everywhere in authzconf.
func (p *Provider) WithPath(string) support.E2EClusterProvider { return p }

// WithOpts applies options.
func (p *Provider) WithOpts(opts ...support.ClusterOpts) support.E2EClusterProvider {
	for _, o := range opts {
		o(p)
	}
	return p
}

// SetDefaults sets the newest version if none is set.
func (p *Provider) SetDefaults() support.E2EClusterProvider { return p.defaults() }

// Create brings the cluster up, and returns the path of an administrator's
// kubeconfig, which is removed with it. It takes no arguments.
func (p *Provider) Create(ctx context.Context, args ...string) (string, error) {
	if len(args) > 0 {
		return "", fmt.Errorf("arguments %q: a cluster of authzconf takes none", args)
	}
	if p.cluster != nil {
		return "", errors.New("the cluster is there already")
	}
	release, err := local.ParseRelease(p.version)
	if err != nil {
		return "", err
	}
	if p.cluster, err = p.start(ctx, release); err != nil {
		p.cluster = nil
		return "", err
	}
	if err := p.writeKubeconfig(); err != nil {
		return "", errors.Join(err, p.Destroy(ctx))
	}
	return p.kubeconfig, nil
}

// start returns an interface that is nil after an error.
func (p *Provider) start(ctx context.Context, release local.Release) (clusters.Cluster, error) {
	if p.kind {
		c, err := kind.Start(ctx, kind.Options{
			Name: p.name, Image: p.options.NodeImage, Version: release.Version, Workers: p.options.Workers, FeatureGates: p.options.FeatureGates,
		})
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	c, err := local.Start(ctx, local.Options{Release: release, FeatureGates: p.options.FeatureGates})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (p *Provider) writeKubeconfig() error {
	dir, err := os.MkdirTemp("", "authzconf-e2e-")
	if err != nil {
		return err
	}
	p.kubeconfig = filepath.Join(dir, "kubeconfig")
	data, err := clusters.Kubeconfig(p.GetKubectlContext(), p.cluster.Admin())
	if err != nil {
		return err
	}
	return os.WriteFile(p.kubeconfig, data, 0o600)
}

// CreateWithConfig refuses: what a cluster is like is said by Options.
func (p *Provider) CreateWithConfig(context.Context, string) (string, error) {
	return "", errors.New("a cluster of authzconf takes no configuration file: use Create")
}

// GetKubeconfig is the path that Create returned.
func (p *Provider) GetKubeconfig() string { return p.kubeconfig }

// GenerateKubeconfig is the same.
func (p *Provider) GenerateKubeconfig(...string) (string, error) { return p.kubeconfig, nil }

// GetKubectlContext is the kubeconfig's only context.
func (p *Provider) GetKubectlContext() string { return "authzconf-" + p.name }

// ExportLogs writes the ends of the logs to a folder.
func (p *Provider) ExportLogs(_ context.Context, dest string) error {
	c, ok := p.cluster.(interface{ LogTail(n int) string })
	if !ok {
		return errors.New("there is no cluster with logs")
	}
	const lines = 1000
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dest, "authzconf.log"), []byte(c.LogTail(lines)), 0o600)
}

// Destroy removes the cluster and its kubeconfig. It may be called again.
func (p *Provider) Destroy(context.Context) error {
	if p.cluster == nil {
		return nil
	}
	err := p.cluster.Stop()
	if p.kubeconfig != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(p.kubeconfig)))
	}
	p.cluster, p.kubeconfig = nil, ""
	return err
}

// WaitForControlPlane has nothing to wait for: Create returns when it is ready.
func (p *Provider) WaitForControlPlane(context.Context, klient.Client) error {
	if p.cluster == nil {
		return errors.New("there is no cluster: call Create")
	}
	return p.cluster.Err()
}

// KubernetesRestConfig authenticates as the administrator; nil without a cluster.
func (p *Provider) KubernetesRestConfig() *rest.Config {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Admin()
}
