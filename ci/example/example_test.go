// Package example tests authorizers as their authors would, with nothing but what other modules may import. The
// engine that decides stands for yours: it is the reference authorizer of conditional authorization.
package example

import (
	"context"
	"encoding/json"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/certify/certifytest"
	"github.com/authzconf/authzconf/certify/policy"
	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/drafts/conditional/conditionstest"
	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
	"github.com/authzconf/authzconf/scenarios"
)

// TestAuthorizer: an authorizer of Go is held to KEP-5681.
func TestAuthorizer(t *testing.T) {
	engine := reference.New(wire.Newest(), new(reference.Snapshot))
	conditionstest.Run(t, mine{engine}, conditionstest.Options{Load: load(engine)})
}

// TestWebhook: so is a webhook, which is asked in the revision of the wire that it speaks.
func TestWebhook(t *testing.T) {
	engine := reference.New(wire.Newest(), new(reference.Snapshot))
	conditionstest.RunHandler(t, reference.Handler(wire.Newest(), engine), conditionstest.Options{Load: load(engine)})
}

// TestAccess: a webhook that answers SubjectAccessReview is asked what certification asks, here one question in 50.
func TestAccess(t *testing.T) {
	var held *policy.Policy
	h := webhook.Handler(func(s authorizationv1.SubjectAccessReviewSpec) scenarios.Decision { return held.Decide(s) })
	certifytest.Run(t, h, certifytest.Options{Sample: 50, Load: func(p *policy.Policy) error {
		held = p.Index()
		return nil
	}})
}

// load gives the engine its policies.
func load(engine *reference.Authorizer) func([]vectors.Policy) error {
	return func(all []vectors.Policy) error {
		s, err := reference.NewSnapshot(all)
		if err == nil {
			engine.Use(s)
		}
		return err
	}
}

// mine is the engine as an authorizer of Go.
type mine struct{ engine *reference.Authorizer }

// Authorize answers who takes no conditions.
func (m mine) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	d := m.engine.Snapshot().Decide(review(a))
	return decision(d.Fold()), d.Reason, d.Err
}

// ConditionsAwareAuthorize answers with conditions where the object decides.
func (m mine) ConditionsAwareAuthorize(_ context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	d := m.engine.Snapshot().Decide(review(a))
	exact := a.GetAPIVersion() != "" && a.GetAPIVersion() != "*" && a.GetAPIGroup() != "*" && a.GetResource() != "*" && a.GetVerb() != "*"
	if len(d.Conditions) == 0 || !exact {
		return authorizer.ConditionsAwareDecisionFromParts(decision(d.Fold()), d.Reason, d.Err)
	}
	by := map[vectors.Decision][]authorizer.Condition{}
	for _, c := range d.Conditions {
		if len(c.Condition) > wire.Newest().Rules.Condition { // it cannot be written down
			return authorizer.ConditionsAwareDecisionFromParts(decision(d.Fold()), "a condition is too long", nil)
		}
		by[c.Effect] = append(by[c.Effect],
			authorizer.GenericCondition{ID: c.ID, Type: wire.Newest().CEL, Condition: c.Condition, Description: c.Description},
		)
	}
	return authorizer.ConditionsAwareDecisionConditionsMap(by[vectors.Deny], by[vectors.NoOpinion], by[vectors.Allow])
}

// EvaluateConditions evaluates them when the object is there.
func (m mine) EvaluateConditions(
	ctx context.Context,
	d authorizer.ConditionsAwareDecision,
	data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	known := vectors.ConditionData{
		Operation: string(data.GetOperation()),
		Object:    object(data.GetObject()),
		OldObject: object(data.GetOldObject()),
		Options:   object(data.GetOperationOptions()),
	}
	return d.ConditionsMap().
		Evaluate(ctx, data, func(_ context.Context, c authorizer.Condition, _ authorizer.ConditionsData) (bool, error) {
			return reference.Holds(c.GetCondition(), known.Variables())
		})
}

func object(o runtime.Object) (out vectors.Object) {
	if raw, err := json.Marshal(o); err == nil && o != nil {
		_ = json.Unmarshal(raw, &out)
	}
	return out
}

func decision(d vectors.Decision) authorizer.Decision {
	switch d {
	case vectors.Allow:
		return authorizer.DecisionAllow
	case vectors.Deny:
		return authorizer.DecisionDeny
	}
	return authorizer.DecisionNoOpinion
}

// review is what the engine reads of a request.
func review(a authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	u := a.GetUser()
	s := authorizationv1.SubjectAccessReviewSpec{
		User:   u.GetName(),
		UID:    u.GetUID(),
		Groups: u.GetGroups(),
		Extra:  map[string]authorizationv1.ExtraValue{},
	}
	for k, v := range u.GetExtra() {
		s.Extra[k] = v
	}
	if !a.IsResourceRequest() {
		s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.GetVerb(), Path: a.GetPath()}
		return s
	}
	s.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb:        a.GetVerb(),
		Namespace:   a.GetNamespace(),
		Group:       a.GetAPIGroup(),
		Version:     a.GetAPIVersion(),
		Resource:    a.GetResource(),
		Subresource: a.GetSubresource(),
		Name:        a.GetName(),
	}
	return s
}
