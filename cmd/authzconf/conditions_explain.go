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
	c.Flags().BoolVar(&q.isMeant, "conditional", false, "explain a question of conditions certify: VECTOR#STEP. Without --authorizer-kubeconfig the reference is asked")
	c.Flags().StringVar(&q.wire, "wire", wire.Newest().Name, "the revision of KEP-5681's wire that the webhook speaks, as the report of conditions certify says it, with --conditional: "+wire.Names())
	c.Flags().StringVar(&q.context, "conditions-context", reference.ConditionsContext, "the kubeconfig's context for AuthorizationConditionsReview, with --conditional")
}

// explain shows a question with its policies, the request, and the answer.
func (q *conditionalQuestion) explain(c *cobra.Command, kubeconfig string, timeout time.Duration, seed int64, question string) error {
	if !c.Flags().Changed("seed") {
		return errors.New("--seed is needed, as conditions certify had it")
	}
	w, err := wire.Named(q.wire)
	if err != nil {
		return fmt.Errorf("--wire: %w", err)
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
	text, isRight, err := plan.Explain(c.Context(), w, ends, question)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(c.OutOrStdout(), text)
	return failedIf(!isRight)
}
