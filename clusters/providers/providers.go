// Package providers has the table of all providers of clusters. It is the only place that knows them by name.
package providers

import (
	"fmt"
	"strings"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/internal/usage"
)

// Settings are what users can choose about providers in addition to a clusters.Request. Each provider uses those that
// are about it.
type Settings struct {
	// Binaries, KubeAPIServerPath and KubeAPIServerEnv are those of local.Provider.
	Binaries          *local.Binaries
	KubeAPIServerPath string
	KubeAPIServerEnv  []string
	// NodeImage, ControlPlanes and Workers are those of kind.Provider.
	NodeImage     string
	ControlPlanes []kind.Worker
	Workers       []kind.Worker
	// Existing is the cluster of existing.Provider.
	Existing *existing.Cluster
}

// table is in the order of messages. The first provider is the default.
var table = []struct {
	name, description string // as in the help of --provider
	provider          func(Settings) clusters.Provider
}{
	{local.Name, "etcd and kube-apiserver as child processes", func(s Settings) clusters.Provider {
		return local.Provider{Binaries: s.Binaries, KubeAPIServerPath: s.KubeAPIServerPath, KubeAPIServerEnv: s.KubeAPIServerEnv}
	}},
	{kind.ProviderName, "two nodes, in containers", func(s Settings) clusters.Provider {
		return kind.Provider{Image: s.NodeImage, ControlPlanes: s.ControlPlanes, Workers: s.Workers}
	}},
	{existing.Name, "the cluster of --kubeconfig", func(s Settings) clusters.Provider {
		return existing.Provider{Cluster: s.Existing}
	}},
}

// New returns the provider of a name. An unknown name is a *usage.Error that says which are known.
func New(name string, s Settings) (clusters.Provider, error) {
	for _, entry := range table {
		if entry.name == name {
			return entry.provider(s), nil
		}
	}
	return nil, &usage.Error{Problem: fmt.Sprintf("unknown provider %q: expected %s", name, Known())}
}

// CapabilitiesOf returns what clusters of the provider with a name can do. Those of an unknown name can do nothing.
func CapabilitiesOf(name string) clusters.Capabilities {
	provider, err := New(name, Settings{})
	if err != nil {
		return clusters.Capabilities{}
	}
	return provider.Capabilities()
}

// Default returns the name of the provider that is used if none is named.
func Default() string { return table[0].name }

// Names returns the names of the providers whose clusters are suitable, in the order of the table.
func Names(suitable func(clusters.Capabilities) bool) (names []string) {
	for _, entry := range table {
		if suitable(CapabilitiesOf(entry.name)) {
			names = append(names, entry.name)
		}
	}
	return names
}

// Known returns the names of all providers as a text.
func Known() string {
	return enumerate(Names(func(clusters.Capabilities) bool { return true }))
}

// Help returns the names of the suitable providers, with what each is, as a text.
func Help(suitable func(clusters.Capabilities) bool) string {
	var texts []string
	for _, entry := range table {
		if suitable(CapabilitiesOf(entry.name)) {
			texts = append(texts, fmt.Sprintf("%s (%s)", entry.name, entry.description))
		}
	}
	return enumerate(texts)
}

func enumerate(texts []string) string {
	last := len(texts) - 1
	if last < 1 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}

// CellName returns the name of a cell. It is what the cell is about, preceded by the provider's name unless that is the
// default.
func CellName(provider, description string) string {
	if provider == Default() {
		return description
	}
	return provider + "-" + description
}
