package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

// beyondFlags ask for the levels that are not tried unless they are asked for.
type beyondFlags struct {
	load       certify.LoadOptions
	loadToo    bool
	soakToo    bool
	inCluster  string
	kubernetes string
	ownCache   time.Duration
	release    local.Release
}

func (f *beyondFlags) register(fl *pflag.FlagSet) {
	fl.BoolVar(&f.loadToo, "load", false, "try level load too: right answers in time at the rates of --load-rates")
	fl.IntSliceVar(&f.load.Rates, "load-rates", certify.LoadRates(), "rates of level load, in reviews per second")
	fl.DurationVar(&f.load.Length, "load-length", certify.LoadLength, "how long each rate is kept up")
	fl.DurationVar(&f.load.P99, "load-p99", certify.LoadP99, "what 99 % of the answers have to come within, at each rate")
	fl.IntVar(&f.load.Volume, "load-volume", certify.LoadVolume, "how many reviews follow, as fast as they are answered")
	fl.DurationVar(&f.load.Idle, "load-idle", certify.LoadIdle, "how long nothing is asked then, before some more")
	fl.BoolVar(&f.soakToo, "soak", false, "try level soak too: right answers over --soak-length that do not become slower, in a memory that does not grow")
	fl.DurationVar(&f.load.Soak, "soak-length", certify.SoakLength, "how long; the level is this or more")
	fl.IntVar(&f.load.SoakRate, "soak-rate", certify.SoakRate, "reviews per second of it; the level is this or more")
	fl.StringVar(&f.inCluster, "in-cluster", "", "try levels in-cluster and revocation too, in the authorizer chain of an API server of this provider: local")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "version of that API server (default the newest)")
	programFlags(fl)
	fl.DurationVar(&f.ownCache, "authorizer-cache", 0, "how long the authorizer itself may remember decisions, as its vendor says")
}

func (f *beyondFlags) check() (err error) {
	if !f.loadToo {
		f.load.Rates = nil
	}
	if !f.soakToo {
		f.load.Soak = 0
	}
	if err := f.load.Check(); err != nil {
		return err
	}
	if f.ownCache < 0 || f.ownCache > certify.MaxOwnCache {
		return fmt.Errorf("--authorizer-cache %s: expected 0 to %s", f.ownCache, certify.MaxOwnCache)
	}
	switch {
	case f.inCluster != "" && !matrix.Matrix{Provider: f.inCluster}.Capabilities().Processes:
		return fmt.Errorf("--in-cluster %q: the provider is %s", f.inCluster, server.Local)
	case f.kubernetes != "":
		f.release, err = local.ParseRelease(f.kubernetes)
	}
	return err
}

func (f *beyondFlags) apply(c *cobra.Command, o *certify.Options, hook string) {
	o.LoadOptions = f.load
	if f.inCluster == "" {
		return
	}
	o.Cluster = &certify.ClusterOptions{Release: f.release, Binaries: binaries(c), OwnCache: f.ownCache}
	if hook != "" {
		o.Cluster.Load = func(ctx context.Context, p *policy.Policy) error { return loadPolicy(ctx, hook, p, c.ErrOrStderr()) }
	}
}

func newCertifyExplain() *cobra.Command {
	var (
		kubeconfig string
		seed       int64
		timeout    time.Duration
	)
	c := commandWith("explain QUESTION --authorizer-kubeconfig FILE --seed N", func(c *cobra.Command, args []string) error {
		if kubeconfig == "" || !c.Flags().Changed("seed") {
			return errors.New("--authorizer-kubeconfig and --seed are needed, as certify had them")
		}
		webhook, err := certify.LoadWebhook(kubeconfig, "")
		if err != nil {
			return fmt.Errorf("--authorizer-kubeconfig: %w", err)
		}
		if timeout <= 0 || timeout > certify.Timeout {
			return fmt.Errorf("--timeout: %s is not more than 0 and at most %s", timeout, certify.Timeout)
		}
		webhook.Timeout = timeout
		plan, err := planOf(seed)
		if err != nil {
			return err
		}
		text, right, err := certify.Explain(c.Context(), webhook, plan, args[0])
		if err != nil {
			return err
		}
		_, _ = fmt.Fprint(c.OutOrStdout(), text)
		return failedIf(!right)
	})
	c.Flags().StringVar(&kubeconfig, "authorizer-kubeconfig", "", "the webhook's kubeconfig")
	c.Flags().Int64Var(&seed, "seed", 0, "seed of the policy that it holds")
	c.Flags().DurationVar(&timeout, "timeout", certify.Timeout, "how long the answer may take")
	return c
}

// outcomeOf is the exit code: a level that cannot be tried with what the vendor gives is not granted, and no failure
// either; nor is one of direct mode that was not to be tried.
func outcomeOf(results []certify.LevelResult, tried []certify.CertificationLevel) error {
	inconclusive := false
	for _, r := range results {
		switch {
		case slices.Contains(certify.Levels(), r.Level) && !slices.Contains(tried, r.Level):
		case r.Granted || r.NotSupported != "":
		case r.Inconclusive != "" && r.Findings == 0:
			inconclusive = true
		default:
			return exitWith(exitFailed)
		}
	}
	if inconclusive {
		return exitWith(exitInvalid)
	}
	return nil
}

func conditionalPlan(seed int64) (*certification.Plan, error) {
	all, err := vectors.Builtin()
	if err != nil {
		return nil, err
	}
	return certification.NewPlan(all, seed)
}

func conditionalKind() (certify.Kind[certification.Exchange], error) {
	all, err := vectors.Builtin()
	return certification.Kind(all), err
}

// webhooks are the two endpoints of a conditional authorizer, whose kubeconfig a flag names.
func webhooks(flag, kubeconfig, conditionsContext string, timeout time.Duration) (out []*certify.Webhook, err error) {
	for _, name := range []string{"", conditionsContext} {
		w, err := certify.LoadWebhook(kubeconfig, name)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		w.Timeout, out = timeout, append(out, w)
	}
	return out, nil
}

// hookLoader has the vendor's program load policies.
func hookLoader(c *cobra.Command, hook string) certification.Loader {
	return func(ctx context.Context, all []vectors.Policy) error {
		raw, err := certification.PoliciesJSON(all)
		if err != nil {
			return err
		}
		return runHook(ctx, hook, raw, c.ErrOrStderr())
	}
}

func (f *certifyFlags) runConditional(c *cobra.Command) error {
	kind, err := conditionalKind()
	if err != nil {
		return err
	}
	if err := writable(kind.Folder(), f.reportDir); err != nil {
		return err
	}
	var o certification.Options
	if o.Webhooks, err = webhooks("authorizer-kubeconfig", f.kubeconfig, f.conditionsContext, f.timeout); err != nil {
		return err
	}
	if f.replica != "" {
		replica, err := webhooks("replica-kubeconfig", f.replica, f.conditionsContext, f.timeout)
		if err != nil {
			return err
		}
		o.Webhooks = append(o.Webhooks, replica...)
	}
	if f.wire != spoken {
		if o.Wire, err = revisionOf(f.wire); err != nil {
			return err
		}
	}
	if o.Plan, err = conditionalPlan(f.seed); err != nil {
		return err
	}
	if f.hook != "" {
		o.Load = hookLoader(c, f.hook)
	}
	run, err := certification.Certify(c.Context(), o)
	if err != nil {
		return invalid(err)
	}
	w, err := wire.Named(run.Wire)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.OutOrStdout(), "wire: %s (%s)\n", w.Name, w.Text)
	result := finish(c.OutOrStdout(), f, kind, run, o.Webhooks[0])
	_, _ = fmt.Fprintf(c.OutOrStdout(), "%s in %.1f s\n", reports.Plural(len(run.Answers), "exchange"), run.Took[certification.Step].Seconds())
	if o.Load == nil {
		_, _ = fmt.Fprintln(c.OutOrStdout(), "not asked: atomic: it takes --policy-hook, which changes the policies in between")
	}
	return result
}

func printConditionalPolicy(out io.Writer, form, file string, seed int64) error {
	plan, err := conditionalPlan(seed)
	if err != nil {
		return err
	}
	all := plan.Policies()
	if file != "" {
		raw, err := filing.Input(file)
		if err != nil {
			return err
		}
		held, err := reference.Load(file, raw)
		if err != nil {
			return err
		}
		all = held.Policies()
	}
	raw, err := certification.Export(form, all)
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	_, err = out.Write(raw)
	return err
}

// spoken is the --wire that has the webhook asked.
const spoken = "auto"

// wireFlag is --wire where there is nobody to ask.
func wireFlag(c *cobra.Command, into *string, usage string) {
	c.Flags().StringVar(into, "wire", wire.Seed.Name, usage+": seed or merged")
}

func revisionOf(name string) (*wire.Revision, error) {
	w, err := wire.Named(name)
	if err != nil {
		return nil, fmt.Errorf("--wire: %w", err)
	}
	return w, nil
}
