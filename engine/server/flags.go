package server

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/verdicts"
)

// ExistingFlags name a cluster that somebody else made.
type ExistingFlags struct {
	kubeconfig  string
	context     string
	iUnderstand bool
}

// Register adds the flags to a flag set.
func (f *ExistingFlags) Register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the cluster for --provider existing: its version and gate are read from it")
	flags.StringVar(&f.context, "context", "", "the context of --kubeconfig (default: its current one)")
	flags.BoolVar(&f.iUnderstand, "i-understand", false, "use a cluster even if it seems to be there for more than tests")
}

// inspectTimeout is how long it may take to find out what a cluster is.
const inspectTimeout = time.Minute

// Options returns what the cluster says it is, if its user may do what is needed. An error that is a *product.Unavailable
// is not for the user to mend.
func (f *ExistingFlags) Options(needs ...existing.Need) (Options, error) {
	if f.kubeconfig == "" {
		return Options{}, fmt.Errorf("--provider %s needs --kubeconfig", Existing)
	}
	cluster, err := existing.Open(f.kubeconfig, f.context, fmt.Sprintf("%012x", rand.Uint64()>>16))
	if err != nil {
		return Options{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), inspectTimeout)
	defer cancel()
	if err := cluster.Require(ctx, needs); err != nil {
		return Options{}, &product.Unavailable{Err: err}
	}
	facts, err := cluster.Inspect(ctx)
	if err != nil {
		return Options{}, &product.Unavailable{Err: err}
	}
	if len(facts.Risks) > 0 && !f.iUnderstand {
		return Options{}, fmt.Errorf(
			"this cluster seems to be there for more than tests: %s; nothing was created in it (--i-understand uses it all the same)",
			strings.Join(facts.Risks, "; "),
		)
	}
	return describeExisting(cluster, facts)
}

func describeExisting(cluster *existing.Cluster, facts existing.Facts) (Options, error) {
	kubernetes, _, _ := strings.Cut(strings.TrimPrefix(facts.GitVersion, "v"), "+")
	var release local.Release
	v, err := utilversion.ParseGeneric(kubernetes)
	if err == nil {
		if release, err = local.ParseRelease(fmt.Sprintf("%d.%d", v.Major(), v.Minor())); err != nil {
			release, err = local.ParseRelease(kubernetes) // of a minor that is not known yet
		}
	}
	if err != nil {
		return Options{}, fmt.Errorf("the cluster is of version %s: %w", facts.GitVersion, err)
	}
	emulated := facts.Emulated
	if emulated == release.Minor {
		emulated = ""
	}
	return Options{
		Cell: verdicts.Cell{
			Name:     Existing + "-" + cmp.Or(emulated, release.Minor) + "-gate-" + string(facts.Gate),
			Provider: Existing, Kubernetes: kubernetes, Emulated: emulated, Gate: facts.Gate,
		},
		Release: release, Existing: cluster,
	}, nil
}

// CheckAPIServers returns an error if the user gave a kube-apiserver for a cell that is none of those which are planned.
func CheckAPIServers(cells []Options) error {
	names := seq.Map(cells, func(o Options) string { return o.Cell.Name })
	for _, o := range cells {
		if o.Binaries != nil {
			return o.Binaries.CheckCells(names...)
		}
	}
	return nil
}
