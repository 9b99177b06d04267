package conditions

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/gate"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/product"
)

// Run runs vectors: the vectors that come with authzconf, or the vectors of a folder.
var Run = product.Product{
	Name:      "conditions run",
	Command:   "conditions run",
	Arguments: " [FOLDER]",
	New: func(fs *pflag.FlagSet) product.Flags {
		f := &runFlags{}
		fs.BoolVar(&f.library, "library", false, "play them against the library of k8s.io/apiserver")
		fs.BoolVar(
			&f.apiServer,
			"api-server",
			false,
			"play them against a kube-apiserver with the gate "+gate.Gate+": the program of TEST_ASSET_KUBE_APISERVER, or of --kubernetes",
		)
		fs.StringVar(&f.kubernetes, "kubernetes", "", "version of --api-server (default: the newest)")
		f.binaries.RegisterFlags(fs)
		fs.StringVar(
			&f.kubeconfig,
			"authorizer-kubeconfig",
			"",
			"play them against the webhook of this kubeconfig, which has the two contexts that conditions certify wants",
		)
		fs.StringVar(
			&f.hook,
			"policy-hook",
			"",
			"a program that loads the policies of the vectors into it: it gets them as JSON on its standard input",
		)
		fs.StringVar(
			&f.wire,
			"wire",
			"",
			"revision of KEP-5681's wire: "+wire.Names()+" (default: all; of a webhook the one that it speaks, of --api-server the newest)",
		)
		return f
	},
}

// runFlags say what the vectors judge. Without flags that is the reference.
type runFlags struct {
	library, apiServer     bool
	kubernetes             string
	binaries               local.Binaries
	kubeconfig, hook, wire string
}

// Plan reads the vectors, and how the subject is reached.
func (f *runFlags) Plan(i *product.Invocation) (product.Plan, error) {
	set, err := loadSet(i)
	if err != nil {
		return nil, err
	}
	switch {
	case f.library:
		return newLibraryPlan(set)
	case f.apiServer:
		return f.planServer(i, set)
	}
	return f.planAuthorizer(i, set)
}

// planServer makes a plan that runs vectors on an API server.
func (f *runFlags) planServer(i *product.Invocation, set *vectorSet) (product.Plan, error) {
	release, err := local.ParseRelease(f.kubernetes)
	if err != nil {
		return nil, fmt.Errorf("--kubernetes: %w", err)
	}
	w, err := namedWire(cmp.Or(f.wire, wire.Newest().Name))
	if err != nil {
		return nil, err
	}
	f.binaries.Progress = i.Messages
	return newServerPlan(set, gate.Options{Release: release, Binaries: &f.binaries, Wire: w})
}

// planAuthorizer makes a plan that runs vectors against a webhook, or against the reference.
func (f *runFlags) planAuthorizer(i *product.Invocation, set *vectorSet) (product.Plan, error) {
	var only *wire.Revision
	if f.wire != "" {
		var err error
		if only, err = namedWire(f.wire); err != nil {
			return nil, err
		}
	}
	if f.kubeconfig == "" {
		if err := set.checkPolicies(); err != nil {
			return nil, err
		}
		return newReferencePlan(set, i.Seed, only)
	}
	o := certification.Options{Load: certification.HookLoader(f.hook, i.Messages), Wire: only}
	if !i.Verifying() {
		webhooks, err := certification.Webhooks("authorizer-kubeconfig", f.kubeconfig, reference.ConditionsContext, certify.Timeout)
		if err != nil {
			return nil, err
		}
		o.Webhooks = webhooks
	}
	return newWebhookPlan(set, i.Seed, "the webhook of "+f.kubeconfig, o)
}

func namedWire(name string) (*wire.Revision, error) {
	w, err := wire.Named(name)
	if err != nil {
		return nil, fmt.Errorf("--wire: %w", err)
	}
	return w, nil
}
