package certify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/clusters/providers"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// Product certifies webhooks that answer SubjectAccessReview.
var Product = product.Product{Name: "certify", Command: "certify", New: func(fs *pflag.FlagSet) product.Flags {
	f := &certifyFlags{}
	f.Register(fs)
	f.versions.register(fs)
	f.registerLoad(fs)
	f.registerCluster(fs)
	return f
}}

// certifyFlags are the flags of certify.
type certifyFlags struct {
	CommonFlags
	versions   reviewVersions
	tryLoad    bool
	load       LoadOptions
	inCluster  string
	kubernetes string
	binaries   local.Binaries
	ownCache   time.Duration
	release    local.Release
}

// registerLoad adds the flags of level load.
func (f *certifyFlags) registerLoad(fs *pflag.FlagSet) {
	fs.BoolVar(&f.tryLoad, "load", false, "try level load too: right answers in time at the rates of --load-rates")
	fs.IntSliceVar(&f.load.Rates, "load-rates", LoadRates(), "rates of level load, in reviews per second")
	fs.DurationVar(
		&f.load.Length,
		"load-duration",
		LoadLength,
		"how long each rate is kept up; from a minute on, answers must not become slower, nor the memory grow",
	)
	fs.DurationVar(&f.load.P99, "load-p99", LoadP99, "what 99 % of the answers have to come within, at each rate")
	fs.IntVar(&f.load.Volume, "load-volume", LoadVolume, "how many reviews follow, as fast as they are answered")
	fs.DurationVar(&f.load.Idle, "load-idle", LoadIdle, "how long nothing is asked then, before some more")
}

// registerCluster adds the flags of the levels that need an API server.
func (f *certifyFlags) registerCluster(fs *pflag.FlagSet) {
	fs.StringVar(
		&f.inCluster,
		"in-cluster",
		"",
		"try levels in-cluster and revocation too, in the authorizer chain of an API server of this provider: local",
	)
	fs.StringVar(&f.kubernetes, "kubernetes", "", "version of that API server (default the newest)")
	f.binaries.RegisterFlags(fs)
	f.binaries.RegisterAPIServers(fs)
	fs.DurationVar(&f.ownCache, "authorizer-cache", 0, "how long the authorizer itself may remember decisions, as its vendor says")
}

// Plan makes the plan of the command line.
func (f *certifyFlags) Plan(i *product.Invocation) (product.Plan, error) {
	challenge, err := f.Prepare(i)
	if err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	o := Options{Blame: true, LoadOptions: f.load, V1Only: f.versions.isV1Only()}
	if o.Webhook, err = f.webhook(i); err != nil {
		return nil, err
	}
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	if o.Plan, err = NewPlan(set, i.Seed); err != nil {
		return nil, err
	}
	if o.V1Only {
		o.Plan = o.Plan.withoutV1beta1()
	}
	o.Plan.setCell(cellFor(f.release))
	if f.inCluster != "" {
		o.Cluster = f.clusterOptions(i.Messages)
	}
	return f.trial(o, challenge, i.Messages), nil
}

// check returns what is wrong with the flags of the levels.
func (f *certifyFlags) check() (err error) {
	if !f.tryLoad {
		f.load.Rates = nil
	}
	if err := f.load.Check(); err != nil {
		return err
	}
	if f.ownCache < 0 || f.ownCache > MaxOwnCache {
		return fmt.Errorf("--authorizer-cache %s: expected 0 to %s", f.ownCache, MaxOwnCache)
	}
	if f.inCluster != "" && !providers.CapabilitiesOf(f.inCluster).Processes {
		return fmt.Errorf("--in-cluster %q: the provider is %s", f.inCluster, server.Local)
	}
	if f.release = local.Newest(); f.kubernetes != "" {
		if f.release, err = local.ParseRelease(f.kubernetes); err != nil {
			return err
		}
	}
	if err := f.binaries.CheckCells(cellFor(f.release).Name); err != nil {
		return err
	}
	return f.versions.check()
}

// clusterOptions returns the options of the levels that need an API server.
func (f *certifyFlags) clusterOptions(messages io.Writer) *ClusterOptions {
	f.binaries.Progress = messages
	o := &ClusterOptions{Release: f.release, Binaries: &f.binaries, OwnCache: f.ownCache}
	if f.Hook != "" {
		o.Load = func(ctx context.Context, p *policy.Policy) error { return f.loadPolicy(ctx, p, messages) }
	}
	return o
}

// loadPolicy runs the policy hook with a policy.
func (f *certifyFlags) loadPolicy(ctx context.Context, p *policy.Policy, messages io.Writer) error {
	raw, err := p.JSON()
	if err != nil {
		return err
	}
	return RunHook(ctx, f.Hook, raw, messages)
}

// trial returns the plan of the product.
func (f *certifyFlags) trial(o Options, challenge *Challenge, messages io.Writer) *Trial[Answer] {
	t := o.trial(f.Subject, challenge, o.cases(f.inCluster != "", f.Hook != ""))
	t.Ask = func(ctx context.Context, r *Runner[Answer], selects func(string) bool) error {
		if f.Hook != "" {
			if err := f.loadPolicy(ctx, o.Plan.Policy, messages); err != nil {
				return err
			}
		}
		err := askAll(ctx, r, o.selectCases(t.Planned, selects))
		var notLoaded *NotLoadedError
		if errors.As(err, &notLoaded) {
			return &usage.Error{Problem: notLoaded.Error(), Err: notLoaded}
		}
		return err
	}
	return t.WithChallenge()
}

// trial returns the plan of a product that asks the questions of the options' plan.
func (o Options) trial(subject Subject, challenge *Challenge, cases []product.Case) *Trial[Answer] {
	t := &Trial[Answer]{
		Subject: subject, Webhook: o.Webhook, Seed: o.Plan.Policy.Seed, Suite: o.Plan.Suite(), Challenge: challenge,
		Planned: cases, Examine: o.Plan.Judge,
	}
	t.Ask = func(ctx context.Context, r *Runner[Answer], selects func(string) bool) error {
		return askAll(ctx, r, o.selectCases(t.Planned, selects))
	}
	return t
}

// newCase returns the case of a part. why is the reason if it is not run.
func newCase(p part, why *product.NotRun) product.Case {
	depends := scenarios.Extended
	if p.level == Core || p.level == Safe {
		depends = scenarios.Core
	}
	c := product.NewCase(string(p.level), p.name, depends, string(p.level))
	c.NotRun = why
	return c
}

// directCases returns the cases of direct mode.
func (o Options) directCases() []product.Case {
	return seq.Map(o.Plan.planTally().parts, func(p part) product.Case { return newCase(p, nil) })
}

// cases returns the cases that are judged, and those that would be judged with other flags.
func (o Options) cases(inCluster, canLoad bool) (out []product.Case) {
	add := func(p part, why *product.NotRun) { out = append(out, newCase(p, why)) }
	out = o.directCases()
	var why *product.NotRun
	if len(o.LoadOptions.Rates) == 0 {
		why = notRunWithout("--load")
		o.LoadOptions.Rates, o.LoadOptions.Volume = LoadRates(), LoadVolume
	}
	for _, p := range o.LoadOptions.parts() {
		add(p, why)
	}
	if why = nil; !inCluster {
		why = notRunWithout("--in-cluster")
	}
	for _, p := range o.Plan.clusterTally().parts {
		add(p, why)
	}
	if inCluster && !canLoad {
		why = &product.NotRun{
			Cause: reports.CauseTargetLacks,
			Why:   "no policy can be loaded while it runs (--policy-hook), so no grant can be taken away",
		}
	}
	for _, w := range windows() {
		add(part{Revocation, w.ID}, why)
	}
	return out
}

// notRunWithout returns the reason that a level is not tried: it needs a flag.
func notRunWithout(flag string) *product.NotRun {
	return &product.NotRun{Cause: reports.CauseUser, Why: "it is tried with " + flag}
}

// selectCases returns the options for those cases that are run.
func (o Options) selectCases(cases []product.Case, selects func(string) bool) Options {
	o.isSelected = selects
	o.Levels = []CertificationLevel{"none"}
	has := func(level CertificationLevel) bool {
		return slices.ContainsFunc(cases, func(c product.Case) bool { return c.Group == string(level) && c.NotRun == nil })
	}
	for _, level := range o.Plan.levels {
		if has(level) {
			o.Levels = append(o.Levels, level)
		}
	}
	if !has(InCluster) && !has(Revocation) {
		o.Cluster = nil
	}
	return o
}
