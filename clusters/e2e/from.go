package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"sigs.k8s.io/e2e-framework/klient"
	"sigs.k8s.io/e2e-framework/support"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/existing"
)

// FromProvider returns a provider of ours whose clusters one of e2e-framework creates, each with these arguments. They
// are observed from outside, like one that exists: the recorder is not in their authorizer chain. Cell.Gate and the
// version of a run have to be what the provider makes of its arguments; the witness compares them.
//
// A provider of e2e-framework has one cluster at a time, and so has this one.
func FromProvider(name string, p support.E2EClusterProvider, args ...string) clusters.Provider {
	return &observingProvider{name: name, provider: p, args: args}
}

type observingProvider struct {
	name     string
	provider support.E2EClusterProvider
	args     []string
}

// Name implements clusters.Provider.
func (o *observingProvider) Name() string { return o.name }

// Capabilities implements clusters.Provider.
func (o *observingProvider) Capabilities() clusters.Capabilities {
	return clusters.Capabilities{Foreign: true}
}

// Create implements clusters.Provider.
func (o *observingProvider) Create(ctx context.Context, _ clusters.Request) (_ clusters.Cluster, err error) {
	name := fmt.Sprintf("authzconf-%s-%06x", o.name, rand.Uint32()>>8)
	provider := o.provider.SetDefaults().WithName(name)
	c := &observedCluster{provider: provider}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("creating a cluster of %s: %w", o.name, err), c.Stop())
		}
	}()
	kubeconfig, err := provider.Create(ctx, o.args...)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	if c.Cluster, err = existing.Parse(kubeconfig, data, "", name); err != nil {
		return nil, err
	}
	client, err := klient.New(c.Admin())
	if err != nil {
		return nil, err
	}
	return c, provider.WaitForControlPlane(ctx, client)
}

// observedCluster is a cluster that is observed like an existing one, and destroyed at the end.
type observedCluster struct {
	*existing.Cluster
	provider support.E2EClusterProvider
	stopped  bool
}

// Stop destroys the cluster with everything that was created in it.
func (c *observedCluster) Stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	return c.provider.Destroy(context.Background())
}

// ExportLogs has the provider write the cluster's logs to a folder.
func (c *observedCluster) ExportLogs(ctx context.Context, dest string) error {
	return c.provider.ExportLogs(ctx, dest)
}
