package gate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/engine/server"
)

// Seen is what was seen of one vector on one API server.
type Seen struct {
	Vector string `json:"vector"`
	// Starts is whether an API server so configured starts; nothing else is there if it does not.
	Starts bool `json:"starts"`
	// Review is what a SubjectAccessReview about the request shows, and ReviewEvents who was asked for it.
	Review       *vectors.SubjectAccessReviewStatus `json:"review,omitempty"`
	ReviewEvents []string                           `json:"reviewEvents,omitempty"`
	// Request is the request with all its checks, Alone with a second check that allows it, Behind moreover with an
	// authorizer that allows it behind the chain: a chain that ends with no opinion leaves the decision to that one.
	Request *Sent `json:"request,omitempty"`
	Alone   *Sent `json:"alone,omitempty"`
	Behind  *Sent `json:"behind,omitempty"`
}

// Sent is a request that was sent, and what the webhooks saw of it, in order.
type Sent struct {
	Code   int      `json:"code"`
	Events []string `json:"events"`
}

// admitted reports whether the request went through. It may be about an object that is not there.
func (s *Sent) admitted() bool { return s.Code < 300 || s.Code == http.StatusNotFound }

// proceeded reports whether it went past the filter.
func (s *Sent) proceeded() bool { return s.admitted() || slices.Contains(s.Events, admission) }

// player plays vectors on one API server. Each request has a user and objects of its own.
type player struct {
	*server.Server
	hooks *recorder.Server
	said  *webhooks
	n     int
}

const userPrefix = "authzconf:vector:"

// under does something while the webhooks follow a script.
func (p *player) under(s *script, do func() (int, []byte, error)) (int, []byte, error) {
	s.answered = map[string][]vectors.ConditionSet{}
	p.said.follow(s)
	defer p.said.follow(nil)
	return do()
}

func (p *player) play(ctx context.Context, v *vectors.Vector) (seen Seen, err error) {
	m := v.APIServer
	seen = Seen{Vector: v.ID, Starts: true}
	if err = p.review(ctx, m, &seen); err != nil || m.Request.Mode == "None" {
		return seen, err
	}
	send := func(behind vectors.Decision, compound []vectors.Authorizer) (out *Sent) {
		if err == nil {
			out, err = p.send(ctx, m, &script{verb: m.Request.Verb, chain: m.Chain, compound: compound, behind: behind})
		}
		return out
	}
	// Whose second check no vector is about, it is allowed.
	allowed := []vectors.Authorizer{{Name: "a0", FailureMode: vectors.FailDeny, Decision: vectors.Allow}}
	seen.Alone = send(vectors.NoOpinion, allowed)
	if seen.Request = seen.Alone; m.Compound != nil {
		compound := slices.Clone(m.Compound)
		for i, a := range compound { // whose conditions nobody could tell from those of the first check
			compound[i].Conditions = slices.Clone(a.Conditions)
			for j := range a.Conditions {
				compound[i].Conditions[j].Condition.Condition += " of create"
			}
		}
		seen.Request = send(vectors.NoOpinion, compound)
	}
	if err == nil && !seen.Alone.admitted() {
		seen.Behind = send(vectors.Allow, allowed)
	}
	return seen, err
}

// review asks the API server what it would say to the request.
func (p *player) review(ctx context.Context, m *vectors.APIServer, seen *Seen) error {
	q, spec := sentFor(m), vectors.SubjectAccessReviewSpec{}
	p.n++
	spec.User = fmt.Sprintf("%s%d", userPrefix, p.n)
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: q.Verb, Group: q.APIGroup, Version: q.APIVersion, Resource: q.Resource, Subresource: q.Subresource, Namespace: "default"}
	if q.Mode != "None" {
		spec.ConditionalAuthorization = &vectors.ConditionalAuthorizationConfiguration{Mode: vectors.Mode(q.Mode)}
	}
	body, err := p.said.wire.AskAccess(spec)
	if err != nil {
		return err
	}
	s := &script{user: spec.User, verb: q.Verb, chain: m.Chain}
	code, answer, err := p.under(s, func() (int, []byte, error) {
		return p.exchange(ctx, "", http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", json.RawMessage(body))
	})
	if err == nil && code != http.StatusCreated {
		err = fmt.Errorf("a SubjectAccessReview is answered %d: %.200s", code, answer)
	}
	if err == nil {
		seen.ReviewEvents = s.events
		seen.Review, err = p.said.wire.ReadAccess(answer)
	}
	return err
}

// register has the API server call the mutating webhook for the users of vectors, and waits until it does.
func (p *player) register(ctx context.Context) error {
	code, _, err := p.exchange(ctx, "", http.MethodPost, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "", map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": map[string]any{"name": "authzconf.dev"},
		"webhooks": []any{map[string]any{
			"name": "vectors.authzconf.dev", "admissionReviewVersions": []string{"v1"}, "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 5,
			"clientConfig":    map[string]any{"url": p.hooks.URL + "/mutate/", "caBundle": base64.StdEncoding.EncodeToString(p.hooks.CA)},
			"rules":           []any{map[string]any{"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": []string{"*/*"}, "operations": []string{"*"}}},
			"matchConditions": []any{map[string]any{"name": "users", "expression": fmt.Sprintf("request.userInfo.username.startsWith('%s')", userPrefix)}},
		}},
	})
	if err != nil || code != http.StatusCreated {
		return fmt.Errorf("registering a mutating webhook: %d, %w", code, err)
	}
	probe := &vectors.APIServer{Request: vectors.Request{Verb: "create", APIVersion: "v1", Resource: "configmaps"}}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		sent, err := p.send(ctx, probe, &script{verb: "create", behind: vectors.Allow})
		return err == nil && slices.Contains(sent.Events, admission), err
	})
	if err != nil {
		err = fmt.Errorf("waiting for the mutating webhook to be called: %w", err)
	}
	return err
}
