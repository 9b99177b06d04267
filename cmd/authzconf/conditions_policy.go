package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/reports/filing"
)

func newConditionsPolicy() *cobra.Command {
	var (
		form, file string
		seed       int64
	)
	c := plainCommand("policy", func(c *cobra.Command) error { return printConditionalPolicy(c.OutOrStdout(), form, file, seed) })
	c.Flags().StringVarP(&form, "output", "o", "json", "form: "+strings.Join(certification.Forms(), ", "))
	c.Flags().Int64Var(&seed, "seed", 0, "seed of names and order, the one of conditions certify")
	c.Flags().StringVar(&file, "policy", "", "file with policies in JSON, as a policy hook gets them, instead of those of the seed")
	return c
}

func newConditionsServeReference() *cobra.Command {
	var path, policies, revision string
	c := plainCommand("serve-reference", func(c *cobra.Command) error {
		return serveUntilDone(c, path, func() (func() error, error) {
			if policies == "" {
				return nil, errors.New("--policy is needed: the file with the policies, such as conditions policy prints")
			}
			w, err := wire.Named(revision)
			if err != nil {
				return nil, fmt.Errorf("--wire: %w", err)
			}
			return certification.ServeReference(w, policies, path)
		})
	})
	c.Flags().StringVar(&path, "kubeconfig", "", "file to write, readable by its owner only")
	c.Flags().
		StringVar(&policies, "policy", "", "file with the policies, in JSON as conditions policy prints them or in YAML, which is followed")
	c.Flags().StringVar(&revision, "wire", wire.Newest().Name, "the revision of the wire that it speaks: "+wire.Names())
	return c
}

func printConditionalPolicy(out io.Writer, form, file string, seed int64) error {
	vectors, err := vectors.Builtin()
	if err != nil {
		return err
	}
	plan, err := certification.NewPlan(vectors, seed)
	if err != nil {
		return err
	}
	all := plan.Policies()
	if file != "" {
		raw, err := filing.Input(file)
		if err != nil {
			return err
		}
		snapshot, err := reference.Load(file, raw)
		if err != nil {
			return err
		}
		all = snapshot.Policies()
	}
	raw, err := certification.Export(form, all)
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	_, err = out.Write(raw)
	return err
}
