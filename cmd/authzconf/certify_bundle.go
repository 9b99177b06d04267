package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/filing"
)

type bundleFlags struct {
	results string
	// challenge is what is in challengeFile.
	challengeFile string
	challenge     []byte
	timeout       time.Duration
	levels        []string
}

func (f *bundleFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.challengeFile, "challenge", "", "a file of certify challenge, which gives the seed and is answered by the report")
	fl.StringVar(&f.results, "sonobuoy-results", "", "folder for the report as a tar and, at the end in any case, a done file")
	fl.StringSliceVar(&f.levels, "level", nil, "levels to try, of core, no-overgrant and robust (default: all)")
	fl.DurationVar(&f.timeout, "timeout", certify.Timeout, "how long an answer may take, at most as long as an API server waits")
}

// answerChallenge takes the seed of a challenge, if there is one that can be answered now.
func (f *certifyFlags) answerChallenge(seeded bool) error {
	if f.challengeFile == "" {
		return nil
	}
	challenge, raw, err := readChallenge(f.challengeFile)
	if err == nil {
		err = challenge.Check(time.Now())
	}
	switch {
	case err != nil:
		return fmt.Errorf("--challenge: %s: %w", f.challengeFile, err)
	case seeded && f.seed != challenge.Seed:
		return fmt.Errorf("--seed %d: the challenge is for seed %d", f.seed, challenge.Seed)
	case f.reportDir == "" && f.results == "":
		return errors.New("--challenge needs --report-dir: it is the report that answers it")
	}
	f.seed, f.challenge = challenge.Seed, raw
	return nil
}

func readChallenge(path string) (*certify.Challenge, []byte, error) {
	raw, err := filing.Input(path)
	if err != nil {
		return nil, nil, err
	}
	c, err := certify.ParseChallenge(raw, nil)
	return c, raw, err
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
		if err := newFile(c, "output", out); err != nil {
			return err
		}
		private, err := privateKey("--key", key)
		if err != nil {
			return err
		}
		raw, challenge, err := certify.NewChallenge(private, valid)
		if err != nil {
			return invalid(err)
		}
		if err := os.WriteFile(out, raw, 0o644); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: seed %d, until %s\nthe policy: authzconf certify policy --seed %[2]d\n", out, challenge.Seed, challenge.Ends.Format(time.RFC3339))
		return err
	})
	c.Flags().StringVar(&key, "key", "", "the certifier's private key")
	c.Flags().StringVarP(&out, "output", "o", "", "the file to write")
	c.Flags().DurationVar(&valid, "valid", 24*time.Hour, "how long it can be answered")
	return c
}

func (f *certifyFlags) check() error {
	if err := f.product.Check(); err != nil {
		return fmt.Errorf("--vendor, --product, --product-version, --contact: %w", err)
	}
	if f.timeout <= 0 || f.timeout > certify.Timeout {
		return fmt.Errorf("--timeout: %s is not more than 0 and at most %s", f.timeout, certify.Timeout)
	}
	for _, l := range f.levels {
		if !slices.Contains(certify.Levels(), certify.CertificationLevel(l)) {
			return fmt.Errorf("--level: %q is not one of %v", l, certify.Levels())
		}
	}
	if f.results != "" && f.reportDir == "" {
		f.reportDir = filepath.Join(f.results, "bundle")
	}
	if f.signKey != "" && (f.reportDir == "" || f.product == (certify.Product{})) {
		return errors.New("--sign-key needs --report-dir, and --vendor, --product and --product-version: what is signed is somebody's")
	}
	return f.readKey()
}

func (f *bundleFlags) tried() (out []certify.CertificationLevel) {
	return seq.Filter(certify.Levels(), func(l certify.CertificationLevel) bool {
		return len(f.levels) == 0 || slices.Contains(f.levels, string(l))
	})
}

func (f *certifyFlags) handOver(err error) error {
	if f.results == "" {
		return err
	}
	problem := err
	if exit, ok := errors.AsType[*exitError](err); ok && exit.code == exitFailed {
		problem = nil // it was judged: the report is there
	}
	if e := certify.HandOver(f.results, f.reportDir, problem); e != nil {
		return invalid(errors.Join(err, fmt.Errorf("--sonobuoy-results: %w", e)))
	}
	return err
}

func privateKey(flag, path string) (*certify.Key, error) {
	key, err := certify.LoadKey(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case !key.Private():
		return nil, fmt.Errorf("%s: %s is a public key, and signing takes the private one", flag, path)
	}
	return key, nil
}

func publicKeys(paths []string) (keys []*certify.Key, err error) {
	for _, path := range paths {
		key, err := certify.LoadKey(path)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func newCertifyVerify() *cobra.Command {
	var o verifyBundleOptions
	c := commandWith("verify BUNDLE", func(c *cobra.Command, args []string) error { return verifyBundle(c, args[0], o) })
	c.Flags().StringArrayVar(&o.keys, "key", nil, "a public key: one of those given must have signed the bundle")
	c.Flags().StringVar(&o.challenge, "challenge", "", "the challenge that the bundle has to answer")
	c.Flags().BoolVar(&o.required, "require-signature", false, "a bundle without a valid signature is not verified; needs --key")
	return c
}

func verifier() (certify.Verifier, error) {
	direct, err := directKind()
	conditional, err2 := conditionalKind()
	return func(b certify.Bundle) (*certify.Certification, []string, error) {
		if c, err := b.Certification(); err == nil && c.Kind == conditional.Name {
			return conditional.Verify(b)
		}
		return direct.Verify(b)
	}, errors.Join(err, err2)
}

// verifyBundleOptions say what a bundle has to be beside right.
type verifyBundleOptions struct {
	keys      []string
	challenge string
	required  bool
	certified **certify.Certification // where one that holds is put
}

func verifyBundle(c *cobra.Command, path string, o verifyBundleOptions) error {
	keys, err := publicKeys(o.keys)
	if err != nil {
		return err
	}
	bundle, err := certify.OpenBundle(path)
	if err != nil {
		return err
	}
	signed, wrong := bundle.SignedBy(keys)
	if len(wrong) > 0 {
		return differs(c, wrong, "the bundle is not signed as demanded")
	}
	verify, err := verifier()
	if err != nil {
		return err
	}
	certification, differences, err := verify(bundle)
	made := ""
	if err == nil {
		var unbound []string
		made, unbound = bundle.Made(certification, keys)
		if differences = append(differences, unbound...); o.challenge != "" {
			mine, _, err := readChallenge(o.challenge)
			if err != nil {
				return fmt.Errorf("--challenge: %s: %w", o.challenge, err)
			}
			if theirs, err := certify.ParseChallenge(certification.Challenge, nil); err != nil || *theirs != *mine {
				differences = append(differences, "challenge: the bundle does not answer that of "+o.challenge)
			}
		}
	}
	var other *certify.OtherSuiteError
	switch {
	case errors.As(err, &other):
		return invalid(err)
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case len(differences) > 0:
		return differs(c, differences, "the certification does not follow from its evidence")
	}
	if o.certified != nil {
		*o.certified = certification
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "verified: levels %v follow from the evidence\nsignature: %s\nmade: %s\nevery answer was judged again\n", certification.Levels, signed, made)
	return err
}

func differs(c *cobra.Command, differences []string, what string) error {
	for _, d := range differences {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "differs: %s\n", d)
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("%s: %s", what, reports.Plural(len(differences), "difference"))}
}

func newKeygen() *cobra.Command {
	return commandWith("keygen FILE", func(c *cobra.Command, args []string) error {
		key, err := certify.NewKey(args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "private key: %s\npublic key: %[1]s.pub\nid: %s\n", args[0], key.ID())
		return err
	})
}

func newSign() *cobra.Command {
	var keyFile string
	c := commandWith("sign BUNDLE", func(c *cobra.Command, args []string) error {
		if keyFile == "" {
			return errors.New("--sign-key is needed: a private key, as certify keygen makes it")
		}
		key, err := privateKey("--sign-key", keyFile)
		if err != nil {
			return err
		}
		if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
			return fmt.Errorf("%s: only a folder can be signed", args[0])
		}
		if err := verifyBundle(c, args[0], verifyBundleOptions{}); err != nil {
			return err
		}
		if err := certify.Sign(args[0], key); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "signed by key %s\n", key.ID())
		return err
	})
	c.Flags().StringVar(&keyFile, "sign-key", "", "the private key")
	return c
}

func newCertifyMatrix() *cobra.Command {
	var (
		out  string
		keys []string
	)
	c := commandWith("matrix DIR...", func(c *cobra.Command, args []string) error {
		if out == "" {
			return errors.New("-o is needed: the page to write")
		}
		return writeMatrix(c, args, out, keys)
	})
	c.Flags().StringVarP(&out, "output", "o", "", "the page to write")
	c.Flags().StringArrayVar(&keys, "key", nil, "a public key: one of those given must have signed each bundle")
	return c
}

func writeMatrix(c *cobra.Command, args []string, out string, keys []string) error {
	trusted, err := publicKeys(keys)
	if err != nil {
		return err
	}
	var paths []string
	for _, arg := range args {
		found, err := certify.Bundles(arg)
		if err != nil {
			return err
		}
		paths = append(paths, found...)
	}
	verify, err := verifier()
	if err != nil {
		return err
	}
	page, err := certify.Register(verify, suiteVersion(), filepath.Dir(out), paths, trusted)
	if err != nil {
		return err
	}
	raw, err := page.HTML()
	if err != nil {
		return invalid(err)
	}
	if err := os.WriteFile(out, raw, 0o644); err != nil {
		return err
	}
	for _, row := range page.Rows {
		if len(row.Problems) > 0 {
			_, _ = fmt.Fprintf(c.OutOrStdout(), "cannot be verified: %s: %s\n", row.Path, strings.Join(row.Problems, "; "))
		}
	}
	_, _ = fmt.Fprintf(c.OutOrStdout(), "%s: %d of %s hold\n", out, page.Believed(), reports.Plural(len(page.Rows), "bundle"))
	return failedIf(page.Believed() < len(page.Rows))
}
