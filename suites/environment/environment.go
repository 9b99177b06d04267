// Package environment gives authors of tests with e2e-framework (sigs.k8s.io/e2e-framework) a cluster as authzconf runs
// it: of the version and with the state of the gate that they ask for, with the recorder at both ends of the authorizer
// chain, and with its audit log at hand.
//
//	var testenv = environment.New(environment.Options{Kubernetes: "1.37", Gate: scenarios.GateOn})
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Run(m)) }
//
// A step finds the cluster by what e2e-framework gives it, and what only this cluster has by ServerOf.
package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envfuncs"
	"sigs.k8s.io/e2e-framework/support"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/e2e"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Options say what cluster the environment has. The zero value is a control plane of the newest version on this
// machine, with the gate in that version's default state, and with the authorizers Node and RBAC.
type Options struct {
	// Provider is a name in the table of package providers whose clusters have a recorder: local (the default) or kind.
	Provider string
	// Kubernetes is the version, such as 1.37 or 1.37.1.
	Kubernetes string
	// Gate is the state of ConstrainedImpersonation: on, off, or default. It is default if it is left out.
	Gate scenarios.Gate
	// FeatureGates are further feature gates to set.
	FeatureGates map[string]bool
	// Chain names the authorizers between the two points of the recorder. It is a file of fixtures/chains without
	// .yaml.
	Chain string
	// NodeImage is the node image of a kind cluster. If it is empty, it is kindest/node of the version.
	NodeImage string
}

// clusterName is the name of the cluster in its kubeconfig, and in the context of a step.
const clusterName = "authzconf"

// New returns an environment that creates the cluster before the first test, and destroys it after the last one.
func New(o Options) env.Environment {
	return env.New().
		Setup(envfuncs.CreateCluster(NewProvider(o), clusterName)).
		Finish(envfuncs.DestroyCluster(clusterName))
}

// NewProvider returns the cluster for an environment of the author's own, for example for envfuncs.CreateCluster. A
// version that e2e-framework gets by WithVersion takes precedence over that of the options.
func NewProvider(o Options) support.E2EClusterProvider {
	return e2e.New(func(ctx context.Context, w e2e.ClusterSpec) (e2e.Running, error) {
		options, err := o.server(w)
		if err != nil {
			return nil, err
		}
		started, err := server.Start(ctx, options)
		if err != nil {
			return nil, err
		}
		if m := started.Witness.Mismatches; len(m) > 0 {
			return nil, errors.Join(fmt.Errorf("the cluster is not what was asked for: %s", m[0]), started.Stop())
		}
		return started, nil
	})
}

func (o Options) server(w e2e.ClusterSpec) (server.Options, error) {
	release, err := local.ParseRelease(cmp.Or(w.Version, o.Kubernetes))
	if err != nil {
		return server.Options{}, err
	}
	provider := cmp.Or(o.Provider, providers.Default())
	options := server.Options{
		Cell: verdicts.Cell{
			Name:     providers.CellName(provider, release.Minor),
			Provider: provider, Kubernetes: release.Version, Gate: cmp.Or(o.Gate, scenarios.GateDefault),
		},
		Release: release, FeatureGates: o.FeatureGates, Chain: o.Chain, NodeImage: o.NodeImage,
		Binaries: &local.Binaries{Progress: os.Stderr}, KubeAPIServerPath: w.Path,
	}
	if !options.Capabilities().Recorder {
		can := providers.Names(func(c clusters.Capabilities) bool { return c.Recorder })
		return options, fmt.Errorf("the provider %q gives no cluster with a recorder: expected one of %q", provider, can)
	}
	return options, nil
}

// ServerOf returns the cluster of the environment from the context of a step. It shows whom the API server asked and
// what it audited, and can act as any user. In another environment it panics, because that is a mistake in the test
// itself.
func ServerOf(ctx context.Context) *server.Server {
	provider, _ := envfuncs.GetClusterFromContext(ctx, clusterName)
	if cluster, isOurs := provider.(*e2e.Cluster); isOurs {
		if running, isServer := cluster.Running().(*server.Server); isServer {
			return running
		}
	}
	panic("the context is not one of a step of an environment of this package")
}
