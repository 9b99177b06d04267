package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// policyPoint is the recorder's point that answers as scenarios say.
const policyPoint recorder.Point = "policy"

const abacFile = "abac.jsonl"

// middle is what stands between the recorder's two points: a file of fixtures/chains.
type middle struct {
	// Authorizers are as in AuthorizationConfiguration. A webhook needs no connection: it is the recorder's scripted point.
	Authorizers []apiserverv1.AuthorizerConfiguration `json:"authorizers"`
	// Probes are further requests of the witness, each of which one of the authorizers allows.
	Probes     []probe `json:"probes,omitempty"`
	ABACPolicy string  `json:"abacPolicy,omitempty"` // the policy file of an authorizer of type ABAC
}

// loadMiddle reads a chain by name; the empty name is what every ordinary cluster has.
func loadMiddle(name string) (m middle, _ error) {
	if name == "" {
		return middle{Authorizers: []apiserverv1.AuthorizerConfiguration{{Type: "Node", Name: "node"}, {Type: "RBAC", Name: "rbac"}}}, nil
	}
	raw, err := fixtures.FS.ReadFile("chains/" + name + ".yaml")
	if err != nil {
		return middle{}, fmt.Errorf("there is no authorizer chain %q", name)
	}
	if err := yaml.UnmarshalStrict(raw, &m); err != nil {
		return middle{}, fmt.Errorf("chain %q: %w", name, err)
	}
	return m, nil
}

// decision is what an answer of the scripted webhook amounts to: that of its failure policy if the answer is none.
func (m middle) decision(a recorder.ScriptedReply) scenarios.Decision {
	switch {
	case a.Code != 0 || a.Delay > 0:
		for _, authorizer := range m.Authorizers {
			if authorizer.Webhook != nil && authorizer.Webhook.FailurePolicy == apiserverv1.FailurePolicyDeny {
				return scenarios.Deny
			}
		}
		return scenarios.NoOpinion
	case a.Status.Denied:
		return scenarios.Deny
	case a.Status.Allowed:
		return scenarios.Allow
	}
	return scenarios.NoOpinion
}

// chain is the authorizer chain of a target: the recorder, which never decides here, before and after the others.
type chain struct {
	middle
	recorder Recording
	// cacheFields says whether the version knows cacheAuthorizedRequests (1.34
	// and later); before, the shortest time to live stands for "no cache".
	cacheFields bool
	// cached has the recorder's answers remembered.
	cached bool
}

func (c chain) config() ([]byte, error) {
	authorizers := []apiserverv1.AuthorizerConfiguration{c.point(recorder.Front)}
	for _, a := range c.Authorizers {
		if a.Type == "Webhook" && a.Webhook.ConnectionInfo.Type == "" {
			c.connect(a.Webhook, policyPoint)
		}
		authorizers = append(authorizers, a)
		if conditional(a) {
			authorizers = append(authorizers, c.point(behindPoint))
		}
	}
	return yaml.Marshal(apiserverv1.AuthorizationConfiguration{
		TypeMeta:    metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "AuthorizationConfiguration"},
		Authorizers: append(authorizers, c.point(recorder.Back)),
	})
}

func (c chain) apply(r *clusters.Request) (err error) {
	if r.AuthorizationConfig, err = c.config(); err != nil {
		return err
	}
	// The webhook kubeconfigs contain keys: the run's folder is private.
	r.Files = map[string][]byte{}
	for _, p := range []recorder.Point{recorder.Front, recorder.Back, policyPoint, behindPoint} {
		r.Files[kubeconfigName(p)] = c.recorder.Kubeconfig(p)
	}
	if c.ABACPolicy != "" {
		r.Files[abacFile] = []byte(c.ABACPolicy)
		r.Args = append(r.Args, "--authorization-policy-file="+abacFile)
	}
	return nil
}

func kubeconfigName(p recorder.Point) string { return "recorder-" + string(p) + ".kubeconfig" }

func (c chain) point(p recorder.Point) apiserverv1.AuthorizerConfiguration {
	w := &apiserverv1.WebhookConfiguration{
		Timeout: metav1.Duration{Duration: 10 * time.Second},
		// A review that was not recorded must not let a request through.
		FailurePolicy: apiserverv1.FailurePolicyDeny,
	}
	c.connect(w, p)
	return apiserverv1.AuthorizerConfiguration{Type: "Webhook", Name: "recorder-" + string(p), Webhook: w}
}

// The times for which kube-apiserver remembers a webhook's answers by default.
const authorizedTTL, unauthorizedTTL = 5 * time.Minute, 30 * time.Second

// connect points a webhook at the recorder, and unless it is to be cached, or its chain says for how long, switches its
// cache off, so that every question arrives.
func (c chain) connect(w *apiserverv1.WebhookConfiguration, p recorder.Point) {
	file := clusters.DirPlaceholder + "/" + kubeconfigName(p)
	w.ConnectionInfo = apiserverv1.WebhookConnectionInfo{Type: "KubeConfigFile", KubeConfigFile: &file}
	w.SubjectAccessReviewVersion, w.MatchConditionSubjectAccessReviewVersion = "v1", "v1"
	if w.AuthorizedTTL.Duration > 0 {
		return // the chain says so itself
	}
	if c.cached {
		w.AuthorizedTTL, w.UnauthorizedTTL = metav1.Duration{Duration: authorizedTTL}, metav1.Duration{Duration: unauthorizedTTL}
		return
	}
	// A time to live of 0 would mean the default, minutes.
	w.AuthorizedTTL = metav1.Duration{Duration: time.Nanosecond}
	w.UnauthorizedTTL = metav1.Duration{Duration: time.Nanosecond}
	if c.cacheFields {
		w.CacheAuthorizedRequests, w.CacheUnauthorizedRequests = new(false), new(false)
	}
}

// behindPoint is a point of the recorder just behind a webhook with match conditions. A condition that cannot be
// evaluated denies without any webhook being called: only that nothing arrives here shows it.
const behindPoint recorder.Point = "behind"

// noOpinion is the script of behindPoint.
func noOpinion(authorizationv1.SubjectAccessReviewSpec) recorder.ScriptedReply {
	return recorder.ScriptedReply{}
}

func conditional(a apiserverv1.AuthorizerConfiguration) bool {
	return a.Webhook != nil && len(a.Webhook.MatchConditions) > 0 && a.Webhook.FailurePolicy == apiserverv1.FailurePolicyDeny
}

// conditionErrors replaces what arrived behind the conditional webhook by what it tells: a review of which neither
// the webhook nor the point behind it heard was denied in the webhook's place.
func (m middle) conditionErrors(reviews []verdicts.Review) []verdicts.Review {
	if !slices.ContainsFunc(m.Authorizers, conditional) {
		return reviews
	}
	out := make([]verdicts.Review, 0, len(reviews))
	for i, r := range reviews {
		if r.Point == string(behindPoint) {
			continue
		}
		out = append(out, r)
		isLast := i+1 == len(reviews) || reviews[i+1].Point == verdicts.Front // nothing else was asked about the same
		if isLast && r.Point == verdicts.Front {
			r.Point, r.Decision = verdicts.Policy, scenarios.Deny
			out = append(out, r)
		}
	}
	return out
}

const (
	reloadsMetric = "apiserver_authorization_config_controller_automatic_reloads_total"
	// reloadTimeout is more than the minute after which the API server looks at the file even if it saw no change.
	reloadTimeout = 70 * time.Second
	reloadPoll    = 5 * time.Millisecond
)

// Use lets a scenario have the target until release: for itself if it changes the authorizer chain, or beside others.
func (s *Server) Use(scenario *scenarios.Scenario) (release func()) {
	if !scenario.Alone() {
		return s.UseBesideOthers()
	}
	s.users.Lock()
	return func() {
		defer s.users.Unlock()
		if s.currentChain == s.askedChain || s.broken != nil {
			return
		}
		// The scenario broke off: those after it must not meet what it left.
		ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
		defer cancel()
		s.broken = s.Reload(ctx, s.askedChain)
	}
}

// UseBesideOthers lets somebody have the target until release, together with others who change nothing that all of them share.
func (s *Server) UseBesideOthers() (release func()) {
	s.users.RLock()
	return s.users.RUnlock
}

// Reload puts another chain of fixtures/chains between the recorder's two points, and returns when the API server
// uses it. Only who has the target for itself may call it.
func (s *Server) Reload(ctx context.Context, name string) error {
	middlePart, err := loadMiddle(name)
	if err != nil {
		return err
	}
	return s.reloadChain(ctx, middlePart, name)
}

func (s *Server) reloadChain(ctx context.Context, middlePart middle, name string) error {
	cluster, reloads := s.cluster.(clusters.Reloader)
	if !reloads {
		return errors.New("the AuthorizationConfiguration of this cluster cannot be changed")
	}
	config, err := chain{middle: middlePart, recorder: s.recorder, cacheFields: s.cacheFields()}.config()
	if err != nil {
		return err
	}
	before, err := s.reloads(ctx)
	if err != nil {
		return err
	}
	if err := cluster.ReloadAuthorization(config); err != nil {
		return err
	}
	s.between, s.currentChain = middlePart, name
	err = wait.PollUntilContextTimeout(ctx, reloadPoll, reloadTimeout, true, func(ctx context.Context) (bool, error) {
		after, err := s.reloads(ctx)
		if err == nil && after["failure"] > before["failure"] {
			err = fmt.Errorf("the API server refused the authorizer chain %q", name)
		}
		return after["success"] > before["success"], err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("the API server did not take over the authorizer chain %q within %s", name, reloadTimeout)
	}
	return err
}

func (s *Server) reloads(ctx context.Context) (map[string]float64, error) {
	families, err := s.scrapeNamed(ctx, reloadsMetric)
	return gaugeValues(families[reloadsMetric], "status"), err
}

// cacheFields says whether the version knows how to switch a webhook's cache off.
func (s *Server) cacheFields() bool { return !minorBefore(s.Cell.Kubernetes, 34) }

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
	Webhook  string // the name of one of Options.Webhooks
	Position Position
	Deny     bool // the failure policy Deny; otherwise it is NoOpinion
	// AuthorizedTTL and UnauthorizedTTL are how long the API server remembers what the webhook allowed, and did not.
	AuthorizedTTL, UnauthorizedTTL time.Duration
	Timeout                        time.Duration // how long the API server waits for an answer
}

func webhookFile(name string) string { return "authorizer-" + name + ".kubeconfig" }

func (a Authorizer) middle() (middle, error) {
	file := clusters.DirPlaceholder + "/" + webhookFile(a.Webhook)
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
func (s *Server) ReloadAuthorizer(ctx context.Context, a Authorizer) error {
	middlePart, err := a.middle()
	if err != nil {
		return err
	}
	s.users.Lock()
	defer s.users.Unlock()
	return s.reloadChain(ctx, middlePart, fmt.Sprintf("%s %s", a.Webhook, a.Position))
}

// silence is longer than the timeout of any webhook in fixtures/chains.
const silence = 30 * time.Second

// policy is what the scripted webhook answers: the rules of all scenarios on the target. It is safe for concurrent use.
type policy struct {
	mu    sync.RWMutex
	rules []scenarios.PolicyRule

	down atomic.Bool // every answer is 503
}

// SetPolicy adds the rules of a bound scenario to the scripted webhook's. The first that matches a review decides.
func (s *Server) SetPolicy(rules []scenarios.PolicyRule) {
	s.policy.mu.Lock()
	defer s.policy.mu.Unlock()
	s.policy.rules = append(s.policy.rules, rules...)
}

func (p *policy) answer(spec authorizationv1.SubjectAccessReviewSpec) recorder.ScriptedReply {
	if p.down.Load() {
		return recorder.ScriptedReply{Code: http.StatusServiceUnavailable}
	}
	p.mu.RLock()
	i := slices.IndexFunc(p.rules, func(r scenarios.PolicyRule) bool { return r.For.Covers(spec) })
	var rule scenarios.PolicyRule
	if i >= 0 {
		rule = p.rules[i]
	}
	p.mu.RUnlock()
	status := authorizationv1.SubjectAccessReviewStatus{Reason: rule.Reason, EvaluationError: rule.EvaluationError}
	switch rule.Answer {
	case scenarios.AnswerAllow:
		status.Allowed = true
	case scenarios.AnswerDeny:
		status.Denied = true
	case scenarios.AnswerBoth:
		status.Allowed, status.Denied = true, true
	case scenarios.AnswerError:
		return recorder.ScriptedReply{Code: http.StatusInternalServerError, Body: rule.Reason}
	case scenarios.AnswerForbidden:
		return recorder.ScriptedReply{Code: http.StatusForbidden, Body: rule.Reason}
	case scenarios.AnswerGarbage:
		return recorder.ScriptedReply{Code: http.StatusOK, Body: "<html>" + rule.Reason}
	case scenarios.AnswerSilence:
		return recorder.ScriptedReply{Delay: silence}
	}
	return recorder.ScriptedReply{Status: status}
}
