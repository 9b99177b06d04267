package storm

import (
	"cmp"
	"fmt"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/agent"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// MaxShards is the largest number of shards.
const MaxShards = 64

// Check returns an error if the options contradict each other, by the flags that say them.
func (o *Options) Check() error {
	can, engine := o.can(), cmp.Or(o.Engine, Processes)
	isKnown := can != clusters.Capabilities{}
	var problem string
	switch {
	case o.Shards < 1 || o.Shards > min(o.Profile.Agents(), MaxShards):
		problem = fmt.Sprintf("--shards %d: expected 1 to %d, and no more than the %d agents", o.Shards, MaxShards, o.Profile.Agents())
	case !isKnown:
		problem = fmt.Sprintf("--provider %q: expected %s", o.Provider, providers.Known())
	case engine != Processes && engine != Pods:
		problem = fmt.Sprintf("--engine %q: expected %s or %s", engine, Processes, Pods)
	case engine == Pods && !runsPods(can):
		problem = fmt.Sprintf(
			"--engine %s: a local control plane runs no pods, and pods do not reach it: expected --provider %s beside it",
			Pods,
			suitable(runsPods),
		)
	case !restarts(can) && o.eventful():
		problem = fmt.Sprintf(
			"the profile %s restarts API servers, or has several: expected --provider %s",
			o.Profile.Name,
			suitable(restarts),
		)
	case o.NodeImage != "" && !can.Nodes:
		problem = "--kind-node-image is for --provider " + suitable(hasNodes)
	case o.forForeign() && !can.Foreign:
		problem = "--image, --api-servers and --node-objects kwok are for --provider " + suitable(hasForeignClusters)
	case o.Image != "" && engine != Pods:
		problem = fmt.Sprintf("--image is what pods run: expected --engine %s beside it", Pods)
	case can.Foreign:
		problem = o.checkExisting()
	}
	if problem == "" {
		return nil
	}
	return &usage.Error{Problem: problem}
}

// checkFiles returns an error if this process may not open as many connections as there are agents.
func (o *Options) checkFiles() error {
	if o.Engine == Pods {
		return nil // a pod has a limit of its own, and checks it
	}
	// Every shard has its part of the connections to each server, and a server has all connections that are made to it.
	servers := len(o.Profile.Servers())
	count := (o.Profile.Connections() + o.Shards - 1) / o.Shards * servers
	if err := agent.CheckFiles(max(count, o.Profile.Connections())); err != nil {
		return &usage.Error{Problem: err.Error()}
	}
	return nil
}

// checkExisting returns what is not possible in a cluster that somebody else made, or "".
func (o *Options) checkExisting() string {
	p, cell := o.Profile, o.Existing.Cell
	switch servers := p.Servers(); {
	case p.Authorizer.Kind != profile.RBAC:
		return fmt.Sprintf(
			"--authorizer %s: nothing is put into the authorizer chain of a cluster that exists: expected %s",
			p.Authorizer.Kind,
			profile.RBAC,
		)
	case len(servers) > 1:
		return fmt.Sprintf(
			"the profile %s compares the servers %v, and a cluster that exists is one: expected comparisons on gate-%s (such as the profile one-cluster, or --variants)",
			p.Name,
			servers,
			cell.Gate,
		)
	case servers[0].Gate() != cell.Gate:
		return fmt.Sprintf(
			"the profile %s is about the server %s, and the cluster has the gate %s: expected comparisons on gate-%s",
			p.Name,
			servers[0],
			cell.Gate,
			cell.Gate,
		)
	case p.Starts > 1:
		return fmt.Sprintf("--starts %d: a cluster that exists is not started anew: expected 1", p.Starts)
	case o.Engine == Pods && o.Image == "":
		return fmt.Sprintf("--engine %s: expected --image beside it, with an image of authzconf that the nodes can pull", Pods)
	}
	return ""
}
