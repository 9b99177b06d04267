package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/certify"
	"github.com/authzconf/authzconf/drafts/conditional/certification"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// conditionalQuestion is a question of conditions certify, and how it is asked.
type conditionalQuestion struct {
	isMeant       bool
	wire, context string
}

func (q *conditionalQuestion) register(c *cobra.Command) {
	c.Flags().
		BoolVar(&q.isMeant, "conditional", false, "explain a question of conditions certify: VECTOR#STEP. Without --authorizer-kubeconfig the reference is asked")
	c.Flags().
		StringVar(&q.wire, "wire", certification.Auto, "the revision of KEP-5681's wire, with --conditional: "+wire.Names()+", or auto, which asks the webhook, and the reference in the newest")
	c.Flags().
		StringVar(&q.context, "conditions-context", reference.ConditionsContext, "the kubeconfig's context for AuthorizationConditionsReview, with --conditional")
}

// explain shows a question with its policies, the request, and the answer.
func (q *conditionalQuestion) explain(c *cobra.Command, kubeconfig string, timeout time.Duration, seed int64, question string) error {
	if !c.Flags().Changed("seed") {
		return errors.New("--seed is needed, as conditions certify had it")
	}
	all, err := vectors.Builtin()
	if err != nil {
		return err
	}
	plan, err := certification.NewPlan(all, seed)
	if err != nil {
		return err
	}
	var ends []*certify.Webhook
	if kubeconfig != "" {
		if ends, err = certification.Webhooks("authorizer-kubeconfig", kubeconfig, q.context, timeout); err != nil {
			return err
		}
	}
	w, err := q.revision(c, plan, ends)
	if err != nil {
		return err
	}
	text, isRight, err := plan.Explain(c.Context(), w, ends, question)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(c.OutOrStdout(), text)
	return failedIf(!isRight)
}

// revision returns the revision of the wire in which the question is asked.
func (q *conditionalQuestion) revision(c *cobra.Command, plan *certification.Plan, ends []*certify.Webhook) (*wire.Revision, error) {
	switch {
	case q.wire != certification.Auto:
		w, err := wire.Named(q.wire)
		if err != nil {
			return nil, fmt.Errorf("--wire: %w", err)
		}
		return w, nil
	case ends == nil:
		return wire.Newest(), nil
	}
	w, unknown, err := plan.DetectWire(c.Context(), ends)
	if err == nil && unknown != "" {
		_, _ = fmt.Fprintf(
			c.ErrOrStderr(),
			"asked in revision %s of the wire: which one the webhook speaks is not known (%s)\n",
			w.Name,
			unknown,
		)
	}
	return w, err
}
