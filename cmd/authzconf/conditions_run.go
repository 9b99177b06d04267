package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/conditional/certification"
	"github.com/authzconf/authzconf/conditional/library"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
	"github.com/authzconf/authzconf/conditional/wire"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// conditionsRunFlags say what vectors are played against: the reference unless it is something else.
type conditionsRunFlags struct {
	filedFlags
	library                             bool
	kubeconfig, conditionsContext, hook string
	wire                                string
	seed                                int64
}

func newConditionsRun(flags *conditionsRunFlags) *cobra.Command {
	c := commandWith("run FOLDER", cobra.ExactArgs(1), flags.run)
	fl := c.Flags()
	fl.BoolVar(&flags.library, "library", false, "play them against k8s.io/apiserver's library instead of the reference authorizer")
	fl.StringVar(&flags.kubeconfig, "authorizer-kubeconfig", "", "play them against the webhook of this kubeconfig")
	fl.StringVar(&flags.conditionsContext, "conditions-context", reference.ConditionsContext, "the kubeconfig's context for AuthorizationConditionsReview")
	fl.StringVar(&flags.hook, "policy-hook", "", "a program that loads the policies of the vectors into the webhook: it gets them as JSON on its standard input")
	fl.StringVar(&flags.wire, "wire", "", "revision of KEP-5681's wire: seed or merged (default: both; of a webhook the one that it speaks)")
	seedFlag(c, &flags.seed, "the names of groups and policies (default: random, printed)")
	c.MarkFlagsMutuallyExclusive("library", "authorizer-kubeconfig")
	c.MarkFlagsRequiredTogether("authorizer-kubeconfig", "policy-hook")
	flags.register(fl, "conditions.yaml, report.html, junit.xml, summary.md and evidence/")
	return c
}

func (f *conditionsRunFlags) run(c *cobra.Command, args []string) error {
	all, err := (&selectionFlags{dir: args[0]}).vectors()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s: there are no vectors in it (expected files whose names end in %s)", args[0], vectors.Suffix)
	}
	for _, v := range all {
		if f.kubeconfig != "" || v.Webhook == nil { // a webhook's CEL may have functions of its own
			continue
		}
		if _, err := reference.NewSnapshot(v.Webhook.Policies); err != nil {
			return fmt.Errorf("%s: in webhook: %w", filepath.Join(args[0], v.File), err)
		}
	}
	wires, err := f.wires(nil)
	if err == nil {
		err = f.ready(&certification.PlayedFolder)
	}
	if err != nil {
		return err
	}
	pieces, exchanges := &reports.Pieces{}, &[]certification.Exchange{}
	for _, w := range wires {
		if err := f.ask(c, all, w, exchanges); err != nil {
			return err
		}
	}
	_, err = reports.Keep(pieces, "vectors", &all)
	if err == nil {
		_, err = reports.Keep(pieces, "exchanges", exchanges)
	}
	if err != nil {
		return invalid(err)
	}
	r, err := f.again(c, nil, pieces, nil)
	if err != nil {
		return invalid(err)
	}
	if r.Count(verdicts.NotSupported) == len(r.Results) {
		return fmt.Errorf("%s: none of %s says anything about %s: %s", args[0], reports.Plural(len(all), "vector"), r.Subject, r.Results[0].Why[0])
	}
	if err := renderTable(c.OutOrStdout(), "played", r, 0); err != nil {
		return err
	}
	if err := f.file(&certification.PlayedFolder, r, pieces); err != nil {
		return err
	}
	return exitWith(map[verdicts.Verdict]int{verdicts.Failed: exitFailed, verdicts.Invalid: exitInvalid}[r.Outcome])
}

// wires are the revisions that are asked in; nil is the one that a webhook speaks, which exchanges tell.
func (f *conditionsRunFlags) wires(exchanges []certification.Exchange) ([]*wire.Revision, error) {
	name := f.wire
	switch {
	case name == "" && f.kubeconfig == "":
		return wire.Revisions(), nil
	case name == "" && len(exchanges) == 0:
		return []*wire.Revision{nil}, nil
	case name == "":
		name = exchanges[0].Wire
	}
	w, err := revisionOf(name)
	return []*wire.Revision{w}, err
}

// ask asks an authorizer the vectors in a revision.
func (f *conditionsRunFlags) ask(c *cobra.Command, all []*vectors.Vector, w *wire.Revision, into *[]certification.Exchange) error {
	plan, err := certification.NewPlan(all, f.seed)
	if err != nil || f.library || len(plan.Policies()) == 0 {
		return err
	}
	o := certification.Options{Plan: plan, Wire: w}
	run := &certify.Run[certification.Exchange]{}
	if f.kubeconfig == "" {
		a := reference.New(&reference.Snapshot{})
		a.Wire = w
		o.Load = func(_ context.Context, all []vectors.Policy) error {
			s, err := reference.NewSnapshot(all)
			if err == nil {
				a.Use(s)
			}
			return err
		}
		run, err = certification.CertifyHandler(c.Context(), reference.Handler(w, a), o)
	} else {
		o.Load = hookLoader(c, f.hook)
		if o.Authorize, o.Conditions, err = webhooks(f.kubeconfig, f.conditionsContext); err != nil {
			return err
		}
		run, err = certification.Certify(c.Context(), o)
	}
	if err == nil {
		*into = append(*into, run.Answers...)
	}
	return invalid(err)
}

// again judges what was seen.
func (f *conditionsRunFlags) again(c *cobra.Command, was *certification.Played, p *reports.Pieces, _ *verifyFlags) (*certification.Played, error) {
	if was != nil {
		reseed(c, &f.seed, was.Seed)
	}
	all, err := reports.Take[[]*vectors.Vector](p, "vectors")
	if err != nil {
		return nil, err
	}
	exchanges, err := reports.Take[[]certification.Exchange](p, "exchanges")
	if err != nil {
		return nil, err
	}
	wires, err := f.wires(*exchanges)
	if err != nil {
		return nil, err
	}
	subject := "the reference authorizer"
	var play func(*vectors.Vector) (verdicts.Verdict, []string, error)
	switch {
	case f.library:
		subject = library.Library()
		play = func(v *vectors.Vector) (verdicts.Verdict, []string, error) {
			return library.Play(context.Background(), v)
		}
	case f.kubeconfig != "":
		subject = "the webhook of " + f.kubeconfig
	}
	r, err := certification.Play(*all, f.seed, wires, *exchanges, play)
	if err == nil {
		r.Subject = subject
	}
	return r, err
}
