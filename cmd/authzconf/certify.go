package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports/filing"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
)

func newCertify() *cobra.Command {
	c := productCommand(certify.Product)
	c.AddCommand(productCommand(certify.SafeProduct), newCertifyPolicy(), newServeReference(), newChallenge(), newCertifyExplain())
	return c
}

// planOf makes all questions of a seed.
func planOf(seed int64) (*certify.Plan, error) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	return certify.NewPlan(set, seed)
}

// planWith makes the questions of the seed to which a question belongs, by the question's name.
func planWith(question string, seed int64) (*certify.Plan, error) {
	if strings.HasPrefix(question, string(certify.Safe)+"/") {
		return certify.NewSafePlan(seed)
	}
	return planOf(seed)
}

// policyOf makes the policy of a seed. That takes less time than making all questions.
func policyOf(seed int64) (*policy.Policy, error) {
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		return nil, err
	}
	return policy.New(policy.Bound(set.All(), seed), seed), nil
}

func newCertifyPolicy() *cobra.Command {
	var (
		form, dir string
		seed      int64
	)
	c := plainCommand("policy", func(c *cobra.Command) error {
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
	return c
}

func newServeReference() *cobra.Command {
	var (
		seed         int64
		path, policy string
	)
	c := plainCommand("serve-reference", func(c *cobra.Command) error {
		return serveUntilDone(c, path, func() (func() error, error) { return serveReference(seed, policy, path) })
	})
	c.Flags().Int64Var(&seed, "seed", 0, "seed of the policy")
	c.Flags().StringVar(&path, "kubeconfig", "", "file to write, readable by its owner only")
	c.Flags().StringVar(&policy, "policy", "", "file with the policy as JSON, which is followed, instead of that of the seed")
	return c
}

func serveReference(seed int64, path, kubeconfig string) (stop func() error, err error) {
	if path != "" { // before the plan, which takes seconds
		raw, err := filing.Input(path)
		if err == nil {
			_, err = policy.Parse(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("--policy %s: %w", path, err)
		}
	}
	plan, err := planOf(seed)
	if err != nil {
		return nil, err
	}
	stop, err = certify.ServeReference(plan, path, kubeconfig)
	return stop, invalid(err)
}

// serveUntilDone serves a reference until the command is ended. The kubeconfig for it is written to a file.
func serveUntilDone(c *cobra.Command, kubeconfig string, serve func() (stop func() error, err error)) error {
	if kubeconfig == "" {
		return errors.New("--kubeconfig is needed: where the webhook's kubeconfig is written")
	}
	if err := checkNewFile(c, "kubeconfig", kubeconfig); err != nil {
		return err
	}
	stop, err := serve()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(c.OutOrStdout(), kubeconfig)
	<-c.Context().Done()
	return errors.Join(stop(), os.Remove(kubeconfig))
}

func newCertifyExplain() *cobra.Command {
	var (
		kubeconfig  string
		seed        int64
		timeout     time.Duration
		conditional conditionalQuestion
	)
	c := commandWith("explain QUESTION --authorizer-kubeconfig FILE --seed N", func(c *cobra.Command, args []string) error {
		if conditional.isMeant {
			return conditional.explain(c, kubeconfig, timeout, seed, args[0])
		}
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
		plan, err := planWith(args[0], seed)
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
	c.Flags().Int64Var(&seed, "seed", 0, "seed of the policy that the webhook has loaded")
	c.Flags().DurationVar(&timeout, "timeout", certify.Timeout, "how long the answer may take")
	conditional.register(c)
	return c
}

func newChallenge() *cobra.Command {
	var (
		key, out string
		valid    time.Duration
	)
	c := plainCommand("challenge --key FILE -o FILE", func(c *cobra.Command) error {
		switch {
		case key == "" || out == "":
			return errors.New("--key and -o are needed: the certifier's private key, and the file to write")
		case valid < time.Minute || valid > 90*24*time.Hour:
			return fmt.Errorf("--valid %s: expected 1m to 2160h", valid)
		}
		if err := checkNewFile(c, "output", out); err != nil {
			return err
		}
		private, err := record.LoadPrivateKey(key)
		if err != nil {
			return fmt.Errorf("--key: %w", err)
		}
		raw, challenge, err := certify.NewChallenge(private, valid)
		if err != nil {
			return invalid(err)
		}
		if err := os.WriteFile(out, raw, 0o644); err != nil {
			return err
		}
		_, err = fmt.Fprintf(
			c.OutOrStdout(),
			"%s: seed %d, until %s\nthe policy: authzconf certify policy --seed %[2]d\n",
			out,
			challenge.Seed,
			challenge.Ends.Format(time.RFC3339),
		)
		return err
	})
	c.Flags().StringVar(&key, "key", "", "the certifier's private key")
	c.Flags().StringVarP(&out, "output", "o", "", "the file to write")
	c.Flags().DurationVar(&valid, "valid", 24*time.Hour, "how long it can be answered")
	return c
}
