// Package e2e stands between providers of ours and those of e2e-framework (sigs.k8s.io/e2e-framework): New makes clusters
// of ours available to authors of tests who know that framework, and FromProvider makes whatever implements its
// interface (kwok, k3d, vcluster, …) a provider of ours.
//
// The framework's own support for kind runs kind as a program, and installs one where there is none. Ours uses kind's
// library, as everything here does.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/klient"
	"sigs.k8s.io/e2e-framework/support"

	"github.com/authzconf/authzconf/clusters"
)

// Running is what a Cluster needs of what it starts. It is a clusters.Cluster, or something that contains one.
type Running interface {
	// Admin may do everything.
	Admin() *rest.Config
	// Stop ends everything and removes what was left on disk. It is idempotent.
	Stop() error
}

// ClusterSpec is what users of e2e-framework can request of a cluster.
type ClusterSpec struct {
	Name    string // see Cluster.WithName
	Version string // the version of Kubernetes, such as 1.37; if empty, the maker of the Cluster chooses it
	Path    string // the kube-apiserver to use; if empty, that of the release
}

// Cluster implements support.E2EClusterProvider: an environment of e2e-framework creates and destroys it. Its methods
// are called one at a time.
type Cluster struct {
	start   func(ctx context.Context, w ClusterSpec) (Running, error)
	wanted  ClusterSpec
	running Running
	file    string // the kubeconfig
}

var _ support.E2EClusterProvider = (*Cluster)(nil)

// New returns a cluster that start creates. start gets what the environment has requested until then.
func New(start func(ctx context.Context, w ClusterSpec) (Running, error)) *Cluster {
	return &Cluster{start: start, wanted: ClusterSpec{Name: "authzconf"}}
}

// Running returns what was started, or nil before Create and after Destroy.
func (c *Cluster) Running() Running { return c.running }

// WithName sets the name of the cluster in its kubeconfig.
func (c *Cluster) WithName(name string) support.E2EClusterProvider {
	c.wanted.Name = name
	return c
}

// WithVersion sets the version of Kubernetes to run.
func (c *Cluster) WithVersion(version string) support.E2EClusterProvider {
	c.wanted.Version = version
	return c
}

// WithPath sets the kube-apiserver to run instead of that of a release.
func (c *Cluster) WithPath(path string) support.E2EClusterProvider {
	c.wanted.Path = path
	return c
}

// WithOpts applies options of e2e-framework.
func (c *Cluster) WithOpts(opts ...support.ClusterOpts) support.E2EClusterProvider {
	for _, apply := range opts {
		apply(c)
	}
	return c
}

// SetDefaults changes nothing: New has set the defaults.
func (c *Cluster) SetDefaults() support.E2EClusterProvider { return c }

// Create starts the cluster, unless it runs, and returns the path of its kubeconfig. It takes no arguments.
func (c *Cluster) Create(ctx context.Context, args ...string) (string, error) {
	switch {
	case len(args) > 0:
		return "", fmt.Errorf("a cluster of authzconf takes no arguments, and was given %q", args)
	case c.running != nil:
		return c.file, nil
	}
	running, err := c.start(ctx, c.wanted)
	if err != nil {
		return "", err
	}
	c.running = running
	if _, err := c.GenerateKubeconfig(); err != nil {
		return "", errors.Join(err, c.Destroy(ctx))
	}
	return c.file, nil
}

// CreateWithConfig does the same as Create. A configuration file is an error, because the maker of the Cluster decides
// what the cluster is like.
func (c *Cluster) CreateWithConfig(ctx context.Context, configFile string) (string, error) {
	if configFile != "" {
		return "", fmt.Errorf("a cluster of authzconf takes no configuration file, and was given %s", configFile)
	}
	return c.Create(ctx)
}

// GenerateKubeconfig writes the kubeconfig of the running cluster, for this user only, and returns its path.
func (c *Cluster) GenerateKubeconfig(...string) (string, error) {
	if c.running == nil {
		return "", errors.New("the cluster does not run")
	}
	data, err := clusters.Kubeconfig(c.wanted.Name, c.running.Admin())
	if err != nil {
		return "", fmt.Errorf("the kubeconfig of %s: %w", c.wanted.Name, err)
	}
	if c.file != "" {
		return c.file, os.WriteFile(c.file, data, 0o600)
	}
	file, err := os.CreateTemp("", "authzconf-*.kubeconfig") // readable by this user only
	if err != nil {
		return "", err
	}
	c.file = file.Name()
	_, err = file.Write(data)
	return c.file, errors.Join(err, file.Close())
}

// GetKubeconfig returns the path of the kubeconfig, or nothing before Create.
func (c *Cluster) GetKubeconfig() string { return c.file }

// GetKubectlContext returns the name of the only context of the kubeconfig.
func (c *Cluster) GetKubectlContext() string { return c.wanted.Name }

// KubernetesRestConfig returns how to reach the running cluster as an administrator, or nil.
func (c *Cluster) KubernetesRestConfig() *rest.Config {
	if c.running == nil {
		return nil
	}
	return c.running.Admin()
}

// WaitForControlPlane asks the API server whether it is ready. After Create it is.
func (c *Cluster) WaitForControlPlane(ctx context.Context, client klient.Client) error {
	typed, err := kubernetes.NewForConfig(client.RESTConfig())
	if err != nil {
		return err
	}
	return typed.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// exporter is a Running that has logs.
type exporter interface {
	// ExportLogs writes the logs of the cluster to a folder, which is there.
	ExportLogs(ctx context.Context, dest string) error
}

// ExportLogs writes the logs of the cluster to a folder, which it makes if need be.
func (c *Cluster) ExportLogs(ctx context.Context, dest string) error {
	logs, has := c.running.(exporter)
	if !has {
		return errors.New("the cluster has no logs to export")
	}
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return err
	}
	return logs.ExportLogs(ctx, dest)
}

// Destroy stops the cluster and removes its kubeconfig. It is idempotent.
func (c *Cluster) Destroy(context.Context) error {
	if c.running == nil {
		return nil
	}
	err := c.running.Stop()
	if c.file != "" {
		err = errors.Join(err, os.RemoveAll(c.file))
	}
	c.running, c.file = nil, ""
	return err
}
