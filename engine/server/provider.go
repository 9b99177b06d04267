package server

import (
	"context"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
)

// Names of providers, as in verdicts.Cell, for who wants one of them. What a cluster can do is not asked of its name but
// of its capabilities.
const (
	Local    = local.Name
	Kind     = kind.ProviderName
	Existing = existing.Name
)

// provider returns who creates the cluster.
func (o Options) provider() (clusters.Provider, error) {
	if o.Provider != nil {
		return o.Provider, nil
	}
	return providers.New(o.Cell.Provider, providers.Settings{
		Binaries: o.Binaries, KubeAPIServerPath: o.KubeAPIServerPath, KubeAPIServerEnv: o.KubeAPIServerEnv,
		NodeImage: o.NodeImage, ControlPlanes: o.ControlPlanes, Workers: o.Workers, Existing: o.Existing,
	})
}

// Capabilities returns what the cluster will be able to do; nothing if its provider is not known, which is an error where
// it is started.
func (o Options) Capabilities() clusters.Capabilities {
	provider, err := o.provider()
	if err != nil {
		return clusters.Capabilities{}
	}
	return provider.Capabilities()
}

// Prepare builds or downloads what the provider needs before its first cluster, which may take minutes.
func (o Options) Prepare(ctx context.Context) error {
	provider, err := o.provider()
	if err != nil {
		return err
	}
	preparer, prepares := provider.(clusters.Preparer)
	if !prepares {
		return nil
	}
	return preparer.Prepare(ctx, clusters.Request{Version: o.Release.Version})
}

// Capabilities returns what the cluster can do.
func (s *Server) Capabilities() clusters.Capabilities { return s.can }

// Plain is a control plane with nothing of the harness in its authorizer chain, for what is measured and must not
// pay for a recorder. Nothing is seen of a request but its answer.
type Plain struct {
	// Authorization is the AuthorizationConfiguration; unset, the API server has its own. Files and Args are Files and
	// KubeAPIServerArgs of local.Options.
	Authorization []byte
	Files         map[string][]byte
	Args          []string
}

// blind reports whether nothing is seen of a request but its answer.
func (s *Server) blind() bool { return !s.sees(s.started) }

// Substitutes reports whether ServiceAccounts are substituted for the users of scenarios.
func (s *Server) Substitutes() bool { return s.can.Foreign }
