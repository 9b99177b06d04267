package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/authzconf/authzconf/clusters/existing"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/verdicts"
)

type existingFlags struct {
	kubeconfig, context string
	iUnderstand         bool
}

func (f *existingFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "the cluster for --provider existing: its version and gate are read from it")
	fl.StringVar(&f.context, "context", "", "the context of --kubeconfig (default: its current one)")
	fl.BoolVar(&f.iUnderstand, "i-understand", false, "use a cluster even if it seems to be there for more than tests")
}

// unused refuses flags that are for another provider.
func (f *existingFlags) unused() error {
	if f.kubeconfig != "" || f.context != "" || f.iUnderstand {
		return fmt.Errorf("--kubeconfig, --context and --i-understand are for --provider %s", target.Existing)
	}
	return nil
}

// cells is the only one, which is what the cluster says it is, if its user may do what is needed.
func (f *existingFlags) cells(c *cobra.Command, needs ...existing.Need) ([]target.Options, error) {
	if f.kubeconfig == "" {
		return nil, fmt.Errorf("--provider %s needs --kubeconfig", target.Existing)
	}
	for _, flag := range []string{"kubernetes", "gate", "emulate", "feature-gate", "keep"} {
		if c.Flags().Changed(flag) {
			return nil, fmt.Errorf("--%s cannot be chosen for a cluster that is already running", flag)
		}
	}
	cluster, err := existing.Open(f.kubeconfig, f.context, fmt.Sprintf("%012x", rand.Uint64()>>16))
	if err != nil {
		return nil, err
	}
	if err := cluster.Require(c.Context(), needs); err != nil {
		return nil, invalid(err)
	}
	facts, err := cluster.Inspect(c.Context())
	if err != nil {
		return nil, invalid(err)
	}
	if len(facts.Risks) > 0 && !f.iUnderstand {
		return nil, fmt.Errorf("this cluster seems to be there for more than tests: %s; nothing was created in it (--i-understand uses it all the same)", strings.Join(facts.Risks, "; "))
	}
	kubernetes, _, _ := strings.Cut(strings.TrimPrefix(facts.GitVersion, "v"), "+")
	var release local.Release
	v, err := utilversion.ParseGeneric(kubernetes)
	if err == nil {
		release, err = local.ParseRelease(fmt.Sprintf("%d.%d", v.Major(), v.Minor()))
	}
	if err != nil {
		return nil, fmt.Errorf("the cluster is of version %s: %w", facts.GitVersion, err)
	}
	gate := target.AskOff
	if facts.GateOn {
		gate = target.AskOn
	}
	emulated := facts.Emulated
	if emulated == release.Minor {
		emulated = ""
	}
	return []target.Options{{
		Cell: verdicts.Cell{
			Name:     target.Existing + "-" + cmp.Or(emulated, release.Minor) + "-gate-" + string(gate),
			Provider: target.Existing, Kubernetes: kubernetes, Emulated: emulated, Gate: string(gate),
		},
		Release: release, Existing: cluster,
	}}, nil
}

func cleanExisting(c *cobra.Command, kubeconfig, context string, dryRun bool) error {
	cluster, err := existing.Open(kubeconfig, context, "")
	if err != nil {
		return err
	}
	found, err := cluster.Clean(c.Context(), "", dryRun)
	return cleaned(c, found, dryRun, err)
}

// cleaned says what was removed, or would be; an error is why something was not.
func cleaned(c *cobra.Command, names []string, dryRun bool, err error) error {
	verb := map[bool]string{true: "would remove", false: "removed"}[dryRun]
	for _, name := range names {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "%s %s\n", verb, name)
	}
	if len(names) == 0 && err == nil {
		_, _ = fmt.Fprintln(c.OutOrStdout(), "nothing is left behind")
	}
	return invalid(err)
}
