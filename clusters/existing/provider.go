package existing

import (
	"context"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
)

// Name is the name of this package's clusters for --provider.
const Name = "existing"

// Provider has one cluster, which somebody else made.
type Provider struct {
	// Cluster is that cluster, as Open returns it.
	Cluster *Cluster
}

// Name implements clusters.Provider.
func (Provider) Name() string { return Name }

// Capabilities implements clusters.Provider.
func (Provider) Capabilities() clusters.Capabilities { return clusters.Capabilities{Foreign: true} }

// Create returns the existing cluster. Its Stop removes what was created in it.
func (p Provider) Create(context.Context, clusters.Request) (clusters.Cluster, error) {
	if p.Cluster == nil {
		return nil, &usage.Error{Problem: "the provider " + Name + " needs a kubeconfig"}
	}
	return p.Cluster, nil
}
