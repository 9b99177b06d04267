package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conditional/certification"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/reports"
)

// conditionalPlan is what is asked of a conditional authorizer under a seed.
func conditionalPlan(seed int64) (*certification.Plan, error) {
	all, err := vectors.Builtin()
	if err != nil {
		return nil, err
	}
	return certification.NewPlan(all, seed)
}

// conditionalKind is certification of conditional authorizers.
func conditionalKind() (certify.Kind[certification.Exchange], error) {
	all, err := vectors.Builtin()
	return certification.Kind(all), err
}

// runConditional is certify --conditional.
func (f *certifyFlags) runConditional(c *cobra.Command) error {
	for _, flag := range []string{"level", "review-versions", "load", "soak", "in-cluster", "kubernetes", "authorizer-cache"} {
		if c.Flags().Changed(flag) {
			return fmt.Errorf("--%s is not for --conditional, which tries all of its levels, by reviews of v1 alone", flag)
		}
	}
	kind, err := conditionalKind()
	if err != nil {
		return err
	}
	if err := writable(kind.Folder(), f.reportDir); err != nil {
		return err
	}
	var o certification.Options
	if o.Authorize, err = certify.LoadWebhook(f.kubeconfig, ""); err == nil {
		o.Conditions, err = certify.LoadWebhook(f.kubeconfig, f.conditionsContext)
	}
	if err != nil {
		return fmt.Errorf("--authorizer-kubeconfig: %w", err)
	}
	o.Authorize.Timeout, o.Conditions.Timeout = f.timeout, f.timeout
	if o.Plan, err = conditionalPlan(f.seed); err != nil {
		return err
	}
	if f.hook != "" {
		o.Load = func(ctx context.Context, all []vectors.Policy) error {
			raw, err := certification.PoliciesJSON(all)
			if err != nil {
				return err
			}
			return runHook(ctx, f.hook, raw, c.ErrOrStderr())
		}
	}
	run, err := certification.Certify(c.Context(), o)
	if err != nil {
		return invalid(err)
	}
	result := finish(c.OutOrStdout(), f, kind, run, o.Authorize)
	_, _ = fmt.Fprintf(c.OutOrStdout(), "%s in %.1f s\n", reports.Plural(len(run.Answers), "exchange"), run.Took[certification.Step].Seconds())
	if o.Load == nil {
		_, _ = fmt.Fprintln(c.OutOrStdout(), "not asked: atomic: it takes --policy-hook, which changes the policies in between")
	}
	return result
}

// printConditionalPolicy is certify policy --conditional.
func printConditionalPolicy(out io.Writer, seed int64) error {
	plan, err := conditionalPlan(seed)
	if err != nil {
		return err
	}
	raw, err := certification.PoliciesJSON(plan.Policies())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", raw)
	return err
}
