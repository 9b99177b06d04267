package storm

import (
	"cmp"
	"strings"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// IsForeign reports whether the clusters of a provider are somebody else's. Then there is only one, and it alone
// counts.
func IsForeign(provider string) bool { return providers.CapabilitiesOf(provider).Foreign }

// can returns what the clusters of the run can do.
func (o *Options) can() clusters.Capabilities {
	return providers.CapabilitiesOf(cmp.Or(o.Provider, providers.Default()))
}

func hasNodes(can clusters.Capabilities) bool           { return can.Nodes }
func hasForeignClusters(can clusters.Capabilities) bool { return can.Foreign }
func runsPods(can clusters.Capabilities) bool           { return can.Nodes || can.Foreign }
func restarts(can clusters.Capabilities) bool           { return can.SeveralServers && can.Processes }

// suitable returns the names of the providers whose clusters can do something.
func suitable(can func(clusters.Capabilities) bool) string {
	return strings.Join(providers.Names(can), " or ")
}

// eventful reports whether the profile restarts API servers, or has several behind a balancer.
func (o *Options) eventful() bool {
	return o.Profile.APIServers > 1 || o.Profile.Event.Kind != profile.NoEvent
}

// forForeign reports whether there is an option that only a foreign cluster has a use for.
func (o *Options) forForeign() bool { return o.Image != "" || o.Kwok || len(o.APIServers) > 0 }

// sharedStorage reports whether all servers have the same objects.
func (o *Options) sharedStorage() bool { return o.can().SeveralServers || o.can().Foreign }
