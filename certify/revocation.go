package certify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// impersonationTTL is how long an API server remembers a successful constrained impersonation: newImpersonationCache of
// k8s.io/apiserver/pkg/endpoints/filters/impersonation/cache.go.
const impersonationTTL = 10 * time.Second

// extraWait is how much longer than its limit a window is watched.
const extraWait = 5 * time.Second

// window is the time within which a change of policy has to show in one way of asking.
type window struct {
	ID      string
	Reason  string
	Allowed bool // the answer that is waited for
	// Limit is the sum of the times to live on the way, without the authorizer's own cache and without slack.
	Limit time.Duration
}

// These are the ways of asking in a window.
const (
	wayWebhook     = "webhook"     // the webhook itself, without the API server
	wayReview      = "review"      // a SubjectAccessReview
	wayLegacy      = "impersonate" // impersonation in the legacy way
	wayConstrained = "user-info"   // constrained impersonation
	wayOtherUser   = "another-user"
)

// These are the phases: grants are taken away, and then given back.
const (
	revokedPhase = "revoked"
	grantedPhase = "granted"
)

// windows returns all windows that are measured.
func windows() []window { return append(phaseWindows(revokedPhase), phaseWindows(grantedPhase)...) }

// phaseWindows returns the windows of a phase.
func phaseWindows(phase string) (out []window) {
	allowed := phase == grantedPhase
	reason, ttl, memory := "revoked-too-late", authorizedTTL, impersonationTTL
	if allowed {
		reason, ttl, memory = "granted-too-late", unauthorizedTTL, 0
	}
	for _, way := range []struct {
		name  string
		limit time.Duration
	}{{wayWebhook, 0}, {wayReview, ttl}, {wayLegacy, ttl}, {wayConstrained, ttl + memory}} {
		out = append(out, window{phase + "/" + way.name, reason, allowed, way.limit})
	}
	return append(out, window{phase + "/" + wayOtherUser, "reload-changes-others", true, 0})
}

// MaxOwnCache is how long an authorizer may remember its decisions at most, so that the level ends.
const MaxOwnCache = time.Minute

// limit returns how long a window may be in all.
func (w window) limit(ownCache time.Duration) time.Duration { return w.Limit + ownCache + slack }

// measureRevocation takes grants from some users and gives them back. It measures how long it takes until each way of
// asking shows that.
func (c *cluster) measureRevocation(ctx context.Context, progress func(string, int)) error {
	progress(revocation, len(windows()))
	n := c.plan.Policy.Identities
	if err := c.target.ReloadAuthorizer(ctx, c.authorizerAt(chainPlace{position: server.First})); err != nil {
		return err
	}
	direct, err := c.webhook.newClient(false)
	if err != nil {
		return err
	}
	defer direct.close()
	full := c.plan.Policy
	if err := c.o.Load(ctx, full); err != nil {
		return fmt.Errorf("loading the policy: %w", err)
	}
	defer func() { _ = c.o.Load(context.WithoutCancel(ctx), full) }() // also if a window is interrupted
	if ready, err := c.changePolicy(ctx, direct, revokedPhase, full.Without(n.Reader, n.Legacy, n.Constrained)); err != nil || !ready {
		return err
	}
	_, err = c.changePolicy(ctx, direct, grantedPhase, full)
	return err
}

// changePolicy loads a policy, and watches until every way of asking shows it. It reports whether the windows could be
// measured.
func (c *cluster) changePolicy(ctx context.Context, direct *client, phase string, to *policy.Policy) (ready bool, err error) {
	// What is asked before the change is remembered beyond the change.
	for _, w := range phaseWindows(phase) {
		got, err := c.askWindow(ctx, direct, w)
		refused := !got && phase == revokedPhase
		if err != nil || refused {
			c.addUnready(w, got, err)
			return false, ctx.Err()
		}
	}
	if err := c.o.Load(ctx, to); err != nil {
		return false, fmt.Errorf("loading a policy: %w", err)
	}
	c.watchWindows(ctx, direct, phase, time.Now())
	return true, errors.Join(ctx.Err(), c.target.Err())
}

// addUnready records that a window could not be measured.
func (c *cluster) addUnready(w window, got bool, err error) {
	observation := &ClusterObservation{Error: fmt.Sprintf("before the change allowed was %t", got)}
	if err != nil {
		observation.Error = cutWord(firstLine(err))
	}
	c.answers = append(c.answers, Answer{Check: revocation, Vector: w.ID, ClusterObservation: observation})
}

// watchWindows asks in every way of a phase until all of them show the change, or until that has taken too long.
func (c *cluster) watchWindows(ctx context.Context, direct *client, phase string, since time.Time) {
	open := map[string]window{}
	for _, w := range phaseWindows(phase) {
		open[w.ID] = w
	}
	for len(open) > 0 && ctx.Err() == nil {
		for id, w := range open {
			got, err := c.askWindow(ctx, direct, w)
			took := time.Since(since)
			limit := w.limit(c.o.OwnCache)
			observation := &ClusterObservation{Answer: fmt.Sprint(got), Window: took.Milliseconds(), Limit: limit.Milliseconds()}
			switch {
			case err != nil:
				observation.Error = cutWord(firstLine(err))
			case got != w.Allowed && took < limit+extraWait:
				continue
			}
			c.answers = append(c.answers, Answer{Check: revocation, Vector: w.ID, ClusterObservation: observation})
			delete(open, id)
		}
		clusters.Pause(ctx, pollInterval)
	}
}

// askWindow asks in the way of a window, and reports whether that was allowed.
func (c *cluster) askWindow(ctx context.Context, direct *client, w window) (bool, error) {
	n := c.plan.Policy.Identities
	question := newReview(n.Reader, "get", "", "pods", n.Namespace, "revoked")
	_, way, _ := strings.Cut(w.ID, "/")
	switch way {
	case wayWebhook, wayOtherUser:
		if way == wayOtherUser {
			question = newReview(n.Wide, "get", "", "pods", n.Namespace, "revoked")
		}
		a := direct.ask(ctx, revocation, Question{ID: w.ID, Spec: question})
		if a.Fault != "" {
			return false, errors.New(a.Fault)
		}
		return a.decision() == scenarios.Allow, nil
	case wayReview:
		observation := c.askReview(ctx, question)
		if observation.Error != "" {
			return false, errors.New(observation.Error)
		}
		return observation.Answer == string(scenarios.Allow), nil
	case wayLegacy:
		return c.tryImpersonation(ctx, n.Legacy, &scenarios.Request{Verb: "get", Path: "/version"})
	}
	return c.tryImpersonation(ctx, n.Constrained, &scenarios.Request{Verb: "list", Resource: "pods", Namespace: n.Namespace})
}

// tryImpersonation sends a request on behalf of the target, and reports whether the impersonation was allowed. It does
// not matter what the target itself may do.
func (c *cluster) tryImpersonation(ctx context.Context, user string, r *scenarios.Request) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout+slack)
	defer cancel()
	h, err := c.target.UserClient(
		scenarios.Requestor{User: user},
		&scenarios.Impersonate{User: c.plan.Policy.Identities.Target},
		func(*http.Request) {},
	)
	if err != nil {
		return false, err
	}
	req, err := replay.NewRequest(ctx, c.target.Host(), r)
	if err != nil {
		return false, err
	}
	var o verdicts.Observation
	// The request is observed, so that it does not count for the next scenario.
	err = c.target.Observe(ctx, &o, func() (err error) {
		o.Response, err = replay.RoundTrip(h, req, false)
		return err
	})
	if err != nil {
		return false, err
	}
	// If the impersonation is refused, the message names the impersonator; if the request is, it names the impersonated
	// user.
	return o.Response.Code != http.StatusForbidden || !strings.Contains(o.Response.Body, user), nil
}
