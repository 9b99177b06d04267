package certification

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

// Product certifies webhooks for KEP-5681.
var Product = product.Product{Name: "conditions certify", Command: "conditions certify", New: func(fs *pflag.FlagSet) product.Flags {
	f := &flags{}
	f.Register(fs)
	fs.StringVar(
		&f.conditionsContext,
		"conditions-context",
		reference.ConditionsContext,
		"the kubeconfig's context for AuthorizationConditionsReview",
	)
	fs.StringVar(
		&f.replica,
		"replica-kubeconfig",
		"",
		"the kubeconfig of another replica with the same policies, which has to answer as the first does and to evaluate the conditions that it gave",
	)
	fs.StringVar(&f.wire, "wire", Auto, "the revision of KEP-5681's wire: "+wire.Names()+", or auto, which asks the webhook")
	fs.StringVar(
		&f.language,
		"language",
		formJSON,
		"the language that the policies are written in: "+strings.Join(Forms(), ", ")+". What it cannot say is not applicable",
	)
	return f
}}

// flags are the flags of conditions certify.
type flags struct {
	certify.CommonFlags
	conditionsContext, replica, wire, language string
}

// Plan reads the command line.
func (f *flags) Plan(i *product.Invocation) (product.Plan, error) {
	challenge, err := f.Prepare(i)
	if err != nil {
		return nil, err
	}
	var o Options
	if f.wire != Auto {
		if o.Wire, err = wire.Named(f.wire); err != nil {
			return nil, fmt.Errorf("--wire: %w", err)
		}
	}
	if !i.Verifying() {
		if o.Webhooks, err = f.webhooks(); err != nil {
			return nil, err
		}
	}
	all, err := vectors.Builtin()
	if err != nil {
		return nil, err
	}
	if o.Plan, err = NewPlan(all, i.Seed); err != nil {
		return nil, err
	}
	if o.Plan, err = o.Plan.InLanguage(f.language); err != nil {
		return nil, fmt.Errorf("--language: %w", err)
	}
	if f.replica != "" {
		o.Plan = o.Plan.withReplica()
	}
	if f.Hook != "" {
		o.Load = HookLoader(f.Hook, i.Messages)
	}
	return f.trial(o, challenge), nil
}

// webhooks returns the endpoints of the authorizer, and then the endpoints of its replica.
func (f *flags) webhooks() ([]*certify.Webhook, error) {
	all, err := Webhooks("authorizer-kubeconfig", f.Kubeconfig, f.conditionsContext, f.Timeout)
	if err != nil || f.replica == "" {
		return all, err
	}
	replica, err := Webhooks("replica-kubeconfig", f.replica, f.conditionsContext, f.Timeout)
	return slices.Concat(all, replica), err
}

// trial returns the plan of the product.
func (f *flags) trial(o Options, challenge *certify.Challenge) *certify.Trial[Exchange] {
	t := &certify.Trial[Exchange]{
		Subject: f.Subject, Seed: o.Plan.Seed, Suite: o.Plan.Suite(), Challenge: challenge,
		Planned: o.Plan.cases(o.Load != nil),
		Examine: func(all []Exchange) (*certify.Certification, error) {
			c, err := o.Plan.Judge(all)
			if err != nil || o.Wire == nil || len(all) == 0 {
				return c, err
			}
			if c.Wire != o.Wire.Name {
				err = fmt.Errorf("the exchanges are in revision %s of the wire, and %s was asked for", c.Wire, o.Wire.Name)
			}
			return c, err
		},
		Ask: func(ctx context.Context, r *certify.Runner[Exchange], selects func(string) bool) error {
			o.isSelected = selects
			return askAll(ctx, r, o)
		},
	}
	if len(o.Webhooks) > 0 {
		t.Webhook = o.Webhooks[0]
	}
	return t.WithChallenge()
}

// cases returns a case for each vector.
func (b *Plan) cases(canLoad bool) (out []product.Case) {
	entries := slices.SortedFunc(slices.Values(b.entries), func(x, y entry) int { return strings.Compare(x.id, y.id) })
	for _, level := range Levels() {
		for _, e := range entries {
			if e.level != level {
				continue
			}
			depends := scenarios.Core
			if e.should || level == Atomic {
				depends = scenarios.Extended
			}
			c := product.NewCase(string(level), e.id, depends, string(level))
			switch {
			case e.inexpressible != "":
				c.NotRun = &product.NotRun{Cause: reports.CauseTarget, Why: e.inexpressible}
			case level == Atomic && !canLoad:
				c.NotRun = &product.NotRun{
					Cause: reports.CauseTargetLacks,
					Why:   "it takes --policy-hook, which changes the policies in between",
				}
			}
			out = append(out, c)
		}
	}
	return out
}
