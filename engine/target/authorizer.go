package target

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// Position is where an authorizer under test stands in the chain.
type Position string

// The positions beside Node and RBAC.
const (
	First  Position = "first"
	Middle Position = "middle"
	Last   Position = "last"
)

// Positions are all of them, in order.
func Positions() []Position { return []Position{First, Middle, Last} }

// Authorizer is a webhook under test as a member of the chain. Unlike those of
// fixtures/chains it is not the recorder's, and its answers are cached.
type Authorizer struct {
	// Webhook is the name of one of Options.Webhooks.
	Webhook  string
	Position Position
	// Deny is the failure policy Deny; otherwise it is NoOpinion.
	Deny bool
	// AuthorizedTTL and UnauthorizedTTL are how long the API server remembers
	// what the webhook allowed, and what it did not.
	AuthorizedTTL, UnauthorizedTTL time.Duration
	// Timeout is how long the API server waits for an answer.
	Timeout time.Duration
}

// webhookFile is where the kubeconfig of one of Options.Webhooks is.
func webhookFile(name string) string { return "authorizer-" + name + ".kubeconfig" }

// middle is the chain with the authorizer in its position.
func (a Authorizer) middle() (middle, error) {
	file := local.DirPlaceholder + "/" + webhookFile(a.Webhook)
	policy := apiserverv1.FailurePolicyNoOpinion
	if a.Deny {
		policy = apiserverv1.FailurePolicyDeny
	}
	tested := apiserverv1.AuthorizerConfiguration{Type: "Webhook", Name: "tested", Webhook: &apiserverv1.WebhookConfiguration{
		Timeout: metav1.Duration{Duration: a.Timeout}, FailurePolicy: policy,
		AuthorizedTTL: metav1.Duration{Duration: a.AuthorizedTTL}, UnauthorizedTTL: metav1.Duration{Duration: a.UnauthorizedTTL},
		SubjectAccessReviewVersion: "v1", MatchConditionSubjectAccessReviewVersion: "v1",
		ConnectionInfo: apiserverv1.WebhookConnectionInfo{Type: "KubeConfigFile", KubeConfigFile: &file},
	}}
	node := apiserverv1.AuthorizerConfiguration{Type: "Node", Name: "node"}
	rbac := apiserverv1.AuthorizerConfiguration{Type: "RBAC", Name: "rbac"}
	order := map[Position][]apiserverv1.AuthorizerConfiguration{
		First: {tested, node, rbac}, Middle: {node, tested, rbac}, Last: {node, rbac, tested},
	}[a.Position]
	if order == nil {
		return middle{}, fmt.Errorf("there is no position %q in the chain", a.Position)
	}
	return middle{Authorizers: order}, nil
}

// ReloadAuthorizer puts a chain with an authorizer under test between the recorder's two points, and returns when
// the API server uses it. What the API server had cached of it is forgotten.
func (t *Target) ReloadAuthorizer(ctx context.Context, a Authorizer) error {
	between, err := a.middle()
	if err != nil {
		return err
	}
	t.users.Lock()
	defer t.users.Unlock()
	return t.reload(ctx, between, fmt.Sprintf("%s %s", a.Webhook, a.Position))
}

// silence is longer than the timeout of any webhook in fixtures/chains.
const silence = 30 * time.Second

// policy is what the scripted webhook answers: the rules of all scenarios that
// run on the target, whose names are unique. It is safe for concurrent use.
type policy struct {
	mu    sync.RWMutex
	rules []scenarios.PolicyRule

	down atomic.Bool // every answer is 503
}

// SetPolicy adds the rules of a bound scenario to what the scripted webhook
// answers. The first rule that matches a review decides.
func (t *Target) SetPolicy(rules []scenarios.PolicyRule) {
	t.policy.mu.Lock()
	defer t.policy.mu.Unlock()
	t.policy.rules = append(t.policy.rules, rules...)
}

// answer implements recorder.Script.
func (p *policy) answer(spec authorizationv1.SubjectAccessReviewSpec) recorder.Answer {
	if p.down.Load() {
		return recorder.Answer{Code: http.StatusServiceUnavailable}
	}
	p.mu.RLock()
	i := slices.IndexFunc(p.rules, func(r scenarios.PolicyRule) bool { return r.For.Covers(spec) })
	var rule scenarios.PolicyRule
	if i >= 0 {
		rule = p.rules[i]
	}
	p.mu.RUnlock()
	status := authorizationv1.SubjectAccessReviewStatus{Reason: rule.Reason}
	switch rule.Answer {
	case scenarios.AnswerAllow:
		status.Allowed = true
	case scenarios.AnswerDeny:
		status.Denied = true
	case scenarios.AnswerBoth:
		status.Allowed, status.Denied = true, true
	case scenarios.AnswerError:
		return recorder.Answer{Code: http.StatusInternalServerError, Body: rule.Reason}
	case scenarios.AnswerForbidden:
		return recorder.Answer{Code: http.StatusForbidden, Body: rule.Reason}
	case scenarios.AnswerGarbage:
		return recorder.Answer{Code: http.StatusOK, Body: "<html>" + rule.Reason}
	case scenarios.AnswerSilence:
		return recorder.Answer{Delay: silence}
	}
	return recorder.Answer{Status: status}
}
