package cost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/authzconf/authzconf/certify"
	webhook "github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/conditional/reference"
	"github.com/authzconf/authzconf/conditional/vectors"
)

// Enforcer is the part of an API server that KEP-5681 adds, as a client: it asks a webhook by TLS, remembers its
// answers if it should, and evaluates conditions itself if it knows their type, or has the webhook do it. What
// conditions amount to is decided by k8s.io/apiserver's ConditionsMap.
type Enforcer struct {
	// Cached says whether answers are remembered, Builtin whether TypeCEL is evaluated here.
	Cached, Builtin bool

	access, conditions *certify.Poster
	remembered         map[string]vectors.SubjectAccessReviewStatus
}

// Request sends a request through both phases.
func (e *Enforcer) Request(ctx context.Context, spec vectors.SubjectAccessReviewSpec, data vectors.ConditionData) (vectors.Decision, error) {
	status, err := e.authorize(ctx, spec)
	switch {
	case err != nil:
		return vectors.NoOpinion, err
	case status.Allowed:
		return vectors.Allow, nil
	case status.Denied:
		return vectors.Deny, nil
	case len(status.ConditionsChain) == 0:
		return vectors.NoOpinion, nil
	case len(status.ConditionsChain) > 1 || len(status.ConditionsChain[0].Conditions) == 0:
		return vectors.NoOpinion, errors.New("this client knows one set with conditions")
	}
	return e.evaluate(ctx, status.ConditionsChain, data)
}

// authorize is the first phase.
func (e *Enforcer) authorize(ctx context.Context, spec vectors.SubjectAccessReviewSpec) (out vectors.SubjectAccessReviewStatus, err error) {
	key, err := json.Marshal(spec)
	if err != nil {
		return out, err
	}
	if s, ok := e.remembered[string(key)]; ok && e.Cached {
		return s, nil
	}
	var in vectors.SubjectAccessReview
	in.APIVersion, in.Kind, in.Spec = vectors.AccessVersion, vectors.AccessKind, spec
	if err := post(ctx, e.access, &in); err != nil {
		return out, err
	}
	if err := in.Status.Validate(spec.Mode()); err != nil {
		return out, err
	}
	if e.remembered == nil {
		e.remembered = map[string]vectors.SubjectAccessReviewStatus{}
	}
	e.remembered[string(key)] = in.Status
	return in.Status, nil
}

// evaluate is the second phase.
func (e *Enforcer) evaluate(ctx context.Context, chain []vectors.ConditionSet, data vectors.ConditionData) (vectors.Decision, error) {
	for _, c := range chain[0].Conditions {
		if !e.Builtin || c.Type != reference.TypeCEL {
			return e.ask(ctx, chain, data)
		}
	}
	byEffect := map[vectors.Decision][]authorizer.Condition{}
	for _, c := range chain[0].Conditions {
		byEffect[c.Effect] = append(byEffect[c.Effect], authorizer.GenericCondition{ID: c.ID, Condition: c.Condition, Type: c.Type})
	}
	decision := authorizer.ConditionsAwareDecisionConditionsMap(byEffect[vectors.Deny], byEffect[vectors.NoOpinion], byEffect[vectors.Allow])
	known := data.Variables()
	got, _, err := decision.ConditionsMap().Evaluate(ctx, nil, func(_ context.Context, c authorizer.Condition, _ authorizer.ConditionsData) (bool, error) {
		return reference.Holds(c.GetCondition(), known)
	})
	switch got {
	case authorizer.DecisionAllow:
		return vectors.Allow, err
	case authorizer.DecisionDeny:
		return vectors.Deny, err
	}
	return vectors.NoOpinion, err
}

// ask has the webhook evaluate its conditions.
func (e *Enforcer) ask(ctx context.Context, chain []vectors.ConditionSet, data vectors.ConditionData) (vectors.Decision, error) {
	in := vectors.AuthorizationConditionsReview{Request: &vectors.AuthorizationConditionsRequest{ConditionSets: chain, ConditionData: data}}
	in.APIVersion, in.Kind = vectors.ConditionsVersion, vectors.ConditionsKind
	if err := post(ctx, e.conditions, &in); err != nil {
		return vectors.NoOpinion, err
	}
	switch r := in.Response; {
	case r == nil || r.Validate() != nil:
		return vectors.NoOpinion, errors.New("the response is not valid")
	case r.Allowed:
		return vectors.Allow, nil
	case r.Denied:
		return vectors.Deny, nil
	}
	return vectors.NoOpinion, nil
}

// post replaces a review by its answer.
func post(ctx context.Context, to *certify.Poster, in any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	code, answer, fault := to.Post(ctx, body)
	if fault != "" || code != http.StatusOK {
		return fmt.Errorf("the webhook does not answer: %d %s", code, fault)
	}
	return json.Unmarshal(answer, in)
}

// counted is a webhook whose calls are counted by phase.
type counted struct {
	server              *webhook.Server
	reviews, conditions atomic.Int64
	access, second      *certify.Poster
}

// serveCounted serves an authorizer, and connects to it.
func serveCounted(a *reference.Authorizer) (_ *counted, err error) {
	c, h := &counted{}, reference.Handler(a)
	c.server, err = webhook.Start(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == reference.ConditionsPath {
			c.conditions.Add(1)
		} else {
			c.reviews.Add(1)
		}
		h.ServeHTTP(w, req)
	}), nil)
	if err != nil {
		return nil, err
	}
	raw, err := reference.Kubeconfig(c.server)
	if err != nil {
		return nil, errors.Join(err, c.server.Close())
	}
	for context, to := range map[string]**certify.Poster{"": &c.access, reference.ConditionsContext: &c.second} {
		w, err := certify.ParseWebhook(raw, context)
		if err == nil {
			*to, err = w.Poster()
		}
		if err != nil {
			return nil, errors.Join(err, c.server.Close())
		}
	}
	return c, nil
}

func (c *counted) close() error {
	c.access.Close()
	c.second.Close()
	return c.server.Close()
}

// specOf is a review of a user who may get conditions.
func specOf(user, verb, resource string) vectors.SubjectAccessReviewSpec {
	s := vectors.SubjectAccessReviewSpec{ConditionalAuthorization: &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Optimized}}
	s.User, s.Groups = user, []string{Group}
	s.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: resource}
	return s
}
