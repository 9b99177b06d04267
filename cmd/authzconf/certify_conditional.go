package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conditional/certification"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// conditionalBook is what is asked of a conditional authorizer under a seed.
func conditionalBook(seed int64) (*certification.Book, error) {
	all, err := vectors.Builtin()
	if err != nil {
		return nil, err
	}
	return certification.NewBook(all, seed)
}

// runConditional is certify --conditional.
func (f *certifyFlags) runConditional(c *cobra.Command) error {
	raw, err := certify.ReadKubeconfig(f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--authorizer-kubeconfig: %w", err)
	}
	var o certification.Options
	if o.Authorize, err = certify.ParseWebhook(raw); err == nil {
		o.Conditions, err = certify.ParseContext(raw, f.conditionsContext)
	}
	if err != nil {
		return fmt.Errorf("--authorizer-kubeconfig: %s: %w", f.kubeconfig, err)
	}
	if o.Book, err = conditionalBook(f.seed); err != nil {
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
	exchanges, took, err := certification.Run(c.Context(), o)
	if err != nil {
		return invalid(err)
	}
	result, err := o.Book.Certify(exchanges)
	if err != nil {
		return invalid(err)
	}
	if f.reportDir != "" {
		if err := certification.Write(f.reportDir, result, exchanges); err != nil {
			return invalid(err)
		}
	}
	printConditional(c.OutOrStdout(), result)
	_, _ = fmt.Fprintf(c.OutOrStdout(), "seed %d, %s in %.1f s\n", result.Seed, count(len(exchanges), "exchange"), took.Seconds())
	if f.reportDir != "" {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "report: %s\ncheck it: authzconf certify verify --conditional %s\n", filepath.Join(f.reportDir, "certification.yaml"), f.reportDir)
	}
	if !result.Granted() {
		return &exitError{code: exitFailed}
	}
	return nil
}

// maxFindings are printed: an authorizer without the policies has one of each vector.
const maxFindings = 20

func printConditional(out io.Writer, c *certification.Certification) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "level\tgranted\tvectors\tfindings")
	for _, r := range c.Results {
		_, _ = fmt.Fprintf(t, "%s\t%t\t%d of %d\t%d\n", r.Level, r.Granted, r.Vectors, r.Planned, r.Findings)
	}
	_ = t.Flush()
	for i, f := range c.Findings {
		if i == maxFindings {
			_, _ = fmt.Fprintf(out, "… and %s more, see --report-dir\n", count(len(c.Findings)-i, "finding"))
			break
		}
		kind := "finding"
		if f.Advice {
			kind = "advice"
		}
		_, _ = fmt.Fprintf(out, "%s: %s (%s, %s)\n  %s\n", kind, f.Reason, f.Level, count(f.Count, "answer"), f.Examples[0])
	}
	for _, r := range c.Results {
		if r.Level == certification.Atomic && r.Vectors == 0 {
			_, _ = fmt.Fprintln(out, "not asked: atomic: it takes --policy-hook, which changes the policies in between")
		}
	}
}

// verifyConditional is certify verify --conditional.
func verifyConditional(out io.Writer, folder string) error {
	c, exchanges, err := certification.Read(folder)
	if err != nil {
		return err
	}
	book, err := conditionalBook(c.Seed)
	if err != nil {
		return err
	}
	differences, err := book.Verify(c, exchanges)
	if err != nil {
		return err
	}
	for _, d := range differences {
		_, _ = fmt.Fprintf(out, "differs: %s\n", d)
	}
	if len(differences) > 0 {
		return &exitError{code: exitFailed, err: fmt.Errorf("the certification does not follow from its evidence: %s", count(len(differences), "difference"))}
	}
	_, err = fmt.Fprintf(out, "verified: %s, judged again\n", count(len(exchanges), "exchange"))
	return err
}

// serveConditional is certify serve-reference --conditional.
func serveConditional(c *cobra.Command, policies, kubeconfig string) error {
	if policies == "" {
		return errors.New("--policy is needed: the file with the policies, such as certify policy --conditional prints")
	}
	stop, err := certification.ServeReference(policies, kubeconfig)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(c.OutOrStdout(), kubeconfig)
	<-c.Context().Done()
	return errors.Join(stop(), os.Remove(kubeconfig))
}

// printConditionalPolicy is certify policy --conditional.
func printConditionalPolicy(out io.Writer, seed int64) error {
	book, err := conditionalBook(seed)
	if err != nil {
		return err
	}
	raw, err := certification.PoliciesJSON(book.Policies())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", raw)
	return err
}
