package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/scenarios"
)

type certifyFlags struct {
	kubeconfig, hook        string
	conditionsContext, wire string
	replica                 string
	conditional             bool
	versions                []string
	seed                    int64
	product                 certify.Product
	beyond                  beyondFlags
	filedFlags
	bundleFlags
}

func newCertify() *cobra.Command {
	var flags certifyFlags
	c := plainCommand("certify --authorizer-kubeconfig FILE", func(c *cobra.Command) error { return flags.handOver(flags.run(c)) })
	fl := c.Flags()
	fl.StringVar(&flags.kubeconfig, "authorizer-kubeconfig", "", "the webhook's kubeconfig")
	fl.StringVar(&flags.hook, "policy-hook", "", "a program that loads the policy: it gets it as JSON on its standard input")
	seedFlag(c, &flags.seed, "the policy's names (default: random with --policy-hook, else needed)")
	fl.StringSliceVar(&flags.versions, "review-versions", []string{"v1", "v1beta1"}, "versions of SubjectAccessReview that are asked; v1 alone for who serves only that, which the certification says")
	fl.StringVar(&flags.product.Vendor, "vendor", "", "vendor, for the certification")
	fl.StringVar(&flags.product.Name, "product", "", "product")
	fl.StringVar(&flags.product.Version, "product-version", "", "its version")
	fl.StringVar(&flags.product.Contact, "contact", "", "whom to ask")
	flags.filedFlags.register(fl, "certification, summary and evidence")
	fl.BoolVar(&flags.conditional, "conditional", false, "certify conditional authorization (KEP-5681) instead")
	fl.StringVar(&flags.wire, "wire", spoken, "with --conditional, the revision of KEP-5681's wire: seed, merged, or auto, which asks the webhook")
	fl.StringVar(&flags.conditionsContext, "conditions-context", reference.ConditionsContext, "with --conditional, the kubeconfig's context for AuthorizationConditionsReview")
	fl.StringVar(&flags.replica, "replica-kubeconfig", "", "with --conditional, the kubeconfig of another replica with the same policies, which has to answer as the first does and to evaluate the conditions that it gave")
	flags.beyond.register(fl)
	flags.bundleFlags.register(fl)
	c.AddCommand(newCertifyPolicy(), newCertifyVerify(), newServeReference(), newKeygen(), newSign(), newCertifyMatrix(), newChallenge(), newCertifyExplain())
	return c
}

func directKind() (certify.Kind[certify.Answer], error) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	return certify.Direct(set), err
}

func planOf(seed int64) (*certify.Plan, error) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	return certify.NewPlan(set, seed)
}

// policyOf is the policy of a seed, which is made sooner than all that is asked.
func policyOf(seed int64) (*policy.Policy, error) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	return policy.New(policy.Bound(set.All(), seed), seed), nil
}

func (f *certifyFlags) run(c *cobra.Command) error {
	switch {
	case f.kubeconfig == "":
		return errors.New("--authorizer-kubeconfig is needed: the file that an API server would be given for this webhook")
	case !c.Flags().Changed("seed") && f.hook == "" && f.challengeFile == "":
		return errors.New("--seed is needed, that of the policy which the authorizer holds; or --policy-hook to load one")
	}
	if err := f.answerChallenge(c.Flags().Changed("seed")); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := f.beyond.check(); err != nil {
		return err
	}
	if !slices.Contains(f.versions, "v1") || slices.ContainsFunc(f.versions, func(v string) bool { return v != "v1" && v != "v1beta1" }) {
		return fmt.Errorf("--review-versions %s: expected v1, or v1,v1beta1", strings.Join(f.versions, ","))
	}
	if f.conditional {
		return f.runConditional(c)
	}
	return runDirect(c, f)
}

func runDirect(c *cobra.Command, f *certifyFlags) error {
	kind, err := directKind()
	if err != nil {
		return err
	}
	if err := writable(kind.Folder(), f.reportDir); err != nil {
		return err
	}
	webhook, err := certify.LoadWebhook(f.kubeconfig, "")
	if err != nil {
		return fmt.Errorf("--authorizer-kubeconfig: %w", err)
	}
	webhook.Timeout = f.timeout
	plan, err := planOf(f.seed)
	if err != nil {
		return err
	}
	if f.hook != "" {
		if err := loadPolicy(c.Context(), f.hook, plan.Policy, c.ErrOrStderr()); err != nil {
			return invalid(err)
		}
	}
	o := certify.Options{Webhook: webhook, Plan: plan, Levels: f.tried(), V1Only: !slices.Contains(f.versions, "v1beta1"), Blame: true, Progress: func(step string, n int) {
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", step, reports.Plural(n, "review"))
	}}
	f.beyond.apply(c, &o, f.hook)
	run, err := certify.Certify(c.Context(), o)
	var notLoaded *certify.NotLoadedError
	switch {
	case errors.As(err, &notLoaded):
		return err
	case err != nil:
		return invalid(err)
	}
	return finish(c.OutOrStdout(), f, kind, run, webhook)
}

// hookTime is how long loading a policy may take, hookDelay how long its output may be open after that.
const hookTime, hookDelay = 10 * time.Minute, 5 * time.Second

func loadPolicy(ctx context.Context, program string, p *policy.Policy, stderr io.Writer) error {
	raw, err := p.JSON()
	if err != nil {
		return err
	}
	return runHook(ctx, program, raw, stderr)
}

func runHook(ctx context.Context, program string, policy []byte, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(policy), stderr, stderr
	// What it starts and leaves behind would hold the policy, or our output: its group ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookDelay
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("--policy-hook: it ended, and left a process behind that kept its output open for %s; that was ended: a hook has loaded the policy when it ends", hookDelay)
	case err != nil:
		return fmt.Errorf("--policy-hook: %w", err)
	}
	return nil
}

func finish[A any](out io.Writer, f *certifyFlags, kind certify.Kind[A], run *certify.Run[A], webhook *certify.Webhook) error {
	c := run.Of(f.product)
	if err := c.Bind(f.challenge, webhook); err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("nothing is written: %w", err)}
	}
	if f.reportDir != "" {
		c.Harness = suiteVersion()
		if err := kind.Write(f.reportDir, c, run.Answers); err != nil {
			return invalid(err)
		}
		if f.key != nil {
			if err := certify.Sign(f.reportDir, f.key); err != nil {
				return invalid(err)
			}
		}
	}
	if err := errors.Join(renderTable(out, "levels", certified{c, run.Took}, 0), render(out, "certification", c)); err != nil {
		return invalid(err)
	}
	if f.reportDir != "" {
		_, _ = fmt.Fprintf(out, "report: %s\ncheck it: authzconf certify verify %s\n", filepath.Join(f.reportDir, "report.html"), f.reportDir)
	}
	return outcomeOf(c.Results, f.tried())
}

type certified struct {
	*certify.Certification
	took map[string]time.Duration
}

// Time is how long a level took; some kinds are not measured level by level.
func (c certified) Time(level certify.CertificationLevel) string {
	d, ok := c.took[string(level)]
	if !ok && !slices.Contains(certify.Levels(), level) {
		return "-"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func newCertifyPolicy() *cobra.Command {
	var (
		form, dir, file string
		seed            int64
		conditionals    bool
	)
	c := plainCommand("policy", func(c *cobra.Command) error {
		if conditionals {
			return printConditionalPolicy(c.OutOrStdout(), form, file, seed)
		}
		held, err := policyOf(seed)
		if err != nil {
			return err
		}
		files, err := held.Export(form)
		if err != nil {
			return fmt.Errorf("-o: %w", err)
		}
		raw, one := files[""]
		switch {
		case one != (dir == ""):
			return fmt.Errorf("-o %s: --dir is needed with cedar-k8s and opa, which are folders, and only with them", form)
		case one:
			_, err = c.OutOrStdout().Write(raw)
			return err
		}
		err = os.MkdirAll(dir, 0o755)
		for name, raw := range files {
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), raw, 0o644)
			}
		}
		return err
	})
	c.Flags().StringVarP(&form, "output", "o", "json", "form: "+strings.Join(policy.Formats(), ", "))
	c.Flags().StringVar(&dir, "dir", "", "folder for the files of opa and cedar-k8s; those of another seed in it are replaced")
	c.Flags().Int64Var(&seed, "seed", 0, "seed of names and order")
	c.Flags().BoolVar(&conditionals, "conditional", false, "the policies of certify --conditional, as "+strings.Join(certification.Forms(), ", "))
	c.Flags().StringVar(&file, "policy", "", "with --conditional, file with policies in JSON, as a policy hook gets them, instead of those of the seed")
	return c
}

func serveReference(seed int64, path, kubeconfig, revision string, conditionals bool) (stop func() error, err error) {
	if path != "" && !conditionals { // before the plan, which takes seconds
		raw, err := filing.Input(path)
		if err == nil {
			_, err = policy.Parse(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("--policy %s: %w", path, err)
		}
	}
	switch {
	case !conditionals:
		plan, err := planOf(seed)
		if err != nil {
			return nil, err
		}
		stop, err = certify.ServeReference(plan, path, kubeconfig)
		return stop, invalid(err)
	case path == "":
		return nil, errors.New("--policy is needed: the file with the policies, such as certify policy --conditional prints")
	}
	w, err := revisionOf(revision)
	if err != nil {
		return nil, err
	}
	return certification.ServeReference(w, path, kubeconfig)
}

func newServeReference() *cobra.Command {
	var (
		seed                   int64
		path, policy, revision string
		conditionals           bool
	)
	c := plainCommand("serve-reference", func(c *cobra.Command) error {
		if path == "" {
			return errors.New("--kubeconfig is needed: where the webhook's kubeconfig is written")
		}
		if err := newFile(c, "kubeconfig", path); err != nil {
			return err
		}
		stop, err := serveReference(seed, policy, path, revision, conditionals)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c.OutOrStdout(), path)
		<-c.Context().Done()
		return errors.Join(stop(), os.Remove(path))
	})
	c.Flags().Int64Var(&seed, "seed", 0, "seed of the policy")
	c.Flags().StringVar(&path, "kubeconfig", "", "file to write, readable by its owner only")
	c.Flags().StringVar(&policy, "policy", "", "file with the policy as JSON, which is followed, instead of that of the seed; with --conditional, with the policies")
	wireFlag(c, &revision, "with --conditional, the revision of the wire that it speaks")
	c.Flags().BoolVar(&conditionals, "conditional", false, "the reference of conditional authorization (KEP-5681)")
	return c
}
