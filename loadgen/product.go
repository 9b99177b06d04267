// Package loadgen is the product that storms API servers with node agents and others who impersonate, counts what that
// costs the authorizer, and measures how long it takes.
//
// Package profile says what a storm is made of. Package storm runs it, and counts the access reviews. Its agents
// (packages agent and shard) send what package pacer schedules. Package population has these agents, and predicts the
// access reviews of the requests that they sent. Package run has what is recorded, and package judge what follows from
// it. Package predict is not a part of a storm: it predicts the cost of a cluster that need not exist.
package loadgen

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/shard"
	"github.com/authzconf/authzconf/loadgen/storm"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/verdicts"
)

// Product is the product for storms of agents.
var Product = product.Product{Name: "load", Command: "load", New: newFlags}

// These are the commands of a storm's other processes. They follow the name of the program.
const (
	// ShardCommand runs a part of the agents (shard.Serve).
	ShardCommand = "shard"
	// RecorderCommand runs the recorder (storm.ServeRecorder).
	RecorderCommand = "recorder"
)

// ServePart runs a shard or the recorder of a storm with in and out, if args are those with which a storm starts its
// program as one of them. isPart reports whether they are. A storm starts the program that runs it, so the main
// function of every such program, or TestMain of a suite, calls ServePart with its arguments first.
func ServePart(ctx context.Context, args []string, in io.Reader, out io.Writer) (isPart bool, err error) {
	switch {
	case slices.Equal(args, []string{Product.Command, ShardCommand}):
		return true, shard.Serve(ctx, in, out)
	case slices.Equal(args, []string{Product.Command, RecorderCommand}):
		return true, storm.ServeRecorder(ctx, in, out)
	}
	return false, nil
}

// flags are those of the product.
type flags struct {
	flagSet *pflag.FlagSet

	profile, kubernetes  string
	provider, nodeImage  string
	engine, image, nodes string
	existing             server.ExistingFlags
	binaries             local.Binaries
	apiServers           []string
	adjust               profile.Adjust
	shards               int
}

// These say what the agents' nodes are.
const bareNodes, kwokNodes = "bare", "kwok"

func newFlags(fs *pflag.FlagSet) product.Flags {
	f := &flags{flagSet: fs}
	fs.StringVar(
		&f.profile,
		"profile",
		"",
		"a file, or a built-in profile (load profiles says what they are): "+strings.Join(profile.Names(), ", "),
	)
	fs.StringVar(&f.kubernetes, "kubernetes", local.Newest().Minor, "version to run: "+local.VersionsHelp())
	f.registerAdjustments(fs)
	fs.IntVar(&f.shards, "shards", 1, "shards that the agents are spread over; the schedule is the same for any number")
	fs.StringVar(
		&f.engine,
		"engine",
		storm.Processes,
		"what shards are: "+storm.Processes+", or "+storm.Pods+" (pods of an Indexed Job, with --provider kind or existing)",
	)
	fs.StringVar(
		&f.provider,
		"provider",
		providers.Default(),
		"where the servers come from: local (child processes that share one etcd), kind (a cluster each) or existing (the cluster of --kubeconfig, which alone counts: --authorizer rbac and --counts)",
	)
	f.existing.Register(fs)
	fs.StringSliceVar(
		&f.apiServers,
		"api-servers",
		nil,
		"with --provider existing, the address of each API server (https://HOST:PORT) if there are several: the metrics of all count",
	)
	fs.StringVar(
		&f.image,
		"image",
		"",
		"with --provider existing, an image of authzconf that its nodes can pull: shards are pods of it (without: processes of this machine)",
	)
	fs.StringVar(
		&f.nodes,
		"node-objects",
		bareNodes,
		"what the agents' nodes are: "+bareNodes+" (objects without a status), or with --provider existing "+kwokNodes+" (kept Ready by the kwok that is in the cluster)",
	)
	fs.StringVar(&f.nodeImage, "kind-node-image", "", "node image of kind (default kindest/node of the version)")
	f.binaries.RegisterFlags(fs)
	f.binaries.RegisterSource(fs)
	f.binaries.RegisterAPIServers(fs)
	return f
}

// registerAdjustments adds the flags that change the profile.
func (f *flags) registerAdjustments(fs *pflag.FlagSet) {
	a := &f.adjust
	fs.StringSliceVar(&a.Variants, "variants", nil, "only comparisons between these variants (the A/A pair stays)")
	fs.IntVar(&a.Pairs, "pairs", 0, "pairs of blocks of each comparison (default: the profile's)")
	fs.IntVar(
		&a.Starts,
		"starts",
		0,
		"starts of the servers that the pairs are spread over (default: the profile's, and no more than pairs)",
	)
	fs.BoolVar(&a.Counts, "counts", false, "only count: no claim about latency, so no A/A pair, no margins, two pairs and one start")
	fs.IntVar(&a.Nodes, "nodes", 0, "nodes, with an agent of each DaemonSet (default: the profile's)")
	fs.IntVar(&a.DaemonSets, "daemonsets", 0, "DaemonSets (default: the profile's)")
	fs.StringVar(
		&a.ServiceAccounts,
		"service-accounts",
		"",
		"who has one: shared (one for each DaemonSet) or perAgent (default: the profile's)",
	)
	fs.DurationVar(&a.Every, "every", 0, "how often each agent asks (default: the profile's)")
	fs.DurationVar(&a.Block, "duration", 0, "length of a block, a multiple of 10s (default: the profile's)")
	fs.DurationVar(&a.WebhookDelay, "webhook-delay", 0, "what the authorizer adds to each answer (default: the profile's)")
	fs.StringVar(
		&a.Authorizer,
		"authorizer",
		profile.Webhook,
		"who decides beside RBAC: webhook (nothing is remembered), webhook-cached (as long as by default) or rbac (nobody: the API server counts)",
	)
	fs.IntVar(&a.Bindings, "rbac-bindings", 0, "how many more ClusterRoleBindings there are")
}

// Plan reads everything that can be wrong before anything is started.
func (f *flags) Plan(i *product.Invocation) (product.Plan, error) {
	if f.profile == "" {
		return nil, fmt.Errorf("--profile is missing: name a file, or one of %s", strings.Join(profile.Names(), ", "))
	}
	p, err := profile.Load(f.profile, i.ReadInput)
	if err != nil {
		return nil, err
	}
	if p, err = f.adjustProfile(p); err != nil {
		return nil, err
	}
	o, err := f.options(i, p)
	if err != nil {
		return nil, err
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := f.binaries.CheckCells(o.CellNames()...); err != nil {
		return nil, err
	}
	return newPlan(o), nil
}

// options returns the options of a storm that the flags give.
func (f *flags) options(i *product.Invocation, p *profile.Profile) (o storm.Options, err error) {
	f.binaries.Progress = i.Messages
	o = storm.Options{
		Profile:    p,
		Binaries:   &f.binaries,
		Seed:       i.Seed,
		Shards:     f.shards,
		Provider:   f.provider,
		NodeImage:  f.nodeImage,
		Engine:     f.engine,
		Image:      f.image,
		Kwok:       f.nodes == kwokNodes,
		APIServers: f.apiServers,
	}
	if f.image != "" && !f.flagSet.Changed("engine") {
		o.Engine = storm.Pods
	}
	if !o.Kwok && f.nodes != bareNodes {
		return o, fmt.Errorf("--node-objects %q: expected %s or %s", f.nodes, bareNodes, kwokNodes)
	}
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	o.Command, o.RecorderCommand = []string{self, Product.Command, ShardCommand}, []string{self, Product.Command, RecorderCommand}
	if !storm.IsForeign(f.provider) {
		o.Release, err = f.release(i)
		return o, err
	}
	if o.Existing, err = f.existingCluster(i); err != nil {
		return o, err
	}
	o.Release, o.Profile = o.Existing.Release, p.WithGate(o.Existing.Cell.Gate)
	place := fmt.Sprintf("profile %s on this cluster, gate %s", p.Name, o.Existing.Cell.Gate)
	return o, o.Profile.Check(func(string) string { return place })
}

// release returns the version that the flags name.
func (f *flags) release(i *product.Invocation) (local.Release, error) {
	versions, err := f.binaries.ResolveFlag(context.Background(), i.Fact, f.kubernetes)
	if err != nil {
		return local.Release{}, err
	}
	return local.ParseRelease(versions[0])
}

// clusterKey is the key of what an existing cluster reported about itself.
const clusterKey = "storm/cluster"

// existingCluster returns the cluster that the flags name, or as the record has it.
func (f *flags) existingCluster(i *product.Invocation) (server.Options, error) {
	if !i.Verifying() {
		return f.existing.Options(existing.Needs("list", "", "namespaces", "nodes", "pods")...)
	}
	cell, err := record.Read[verdicts.Cell](*i.Recorded, clusterKey)
	if err != nil {
		return server.Options{}, err
	}
	return server.Options{Cell: *cell}, nil
}

// adjustProfile changes the profile as the flags say.
func (f *flags) adjustProfile(p *profile.Profile) (*profile.Profile, error) {
	a, isGiven := f.adjust, f.flagSet.Changed
	if storm.IsForeign(f.provider) {
		a.Counts = true // there is no second server
		if !isGiven("authorizer") {
			a.Authorizer = profile.RBAC
			isGiven = func(flag string) bool { return flag == "authorizer" || f.flagSet.Changed(flag) }
		}
	}
	return p.Adjusted(a, isGiven)
}
