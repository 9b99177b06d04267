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
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// impersonationTTL is how long an API server remembers a constrained impersonation that succeeded:
// newImpersonationCache of k8s.io/apiserver/pkg/endpoints/filters/impersonation/cache.go.
const impersonationTTL = 10 * time.Second

// timeoutBeyond is how much longer than allowed a window is watched.
const timeoutBeyond = 5 * time.Second

// window is something that a change of policy has to reach within a time.
type window struct {
	ID     string
	Reason string
	// Allowed is what is waited for.
	Allowed bool
	// Limit is the sum of the times to live on the way, without the authorizer's own, and without slack.
	Limit time.Duration
}

// The ways to ask in a window.
const (
	byWebhook     = "webhook"     // the webhook itself, without the API server
	byReview      = "review"      // a SubjectAccessReview
	byLegacy      = "impersonate" // impersonation in the legacy way
	byConstrained = "user-info"   // constrained impersonation
	byOther       = "another-user"
)

// windows are those that are measured: after grants were taken away, and after they were given back.
func windows() (out []window) {
	for _, allowed := range []bool{false, true} {
		phase, reason, ttl, memory := "revoked", "revoked-too-late", authorizedTTL, impersonationTTL
		if allowed {
			phase, reason, ttl, memory = "granted", "granted-too-late", unauthorizedTTL, 0
		}
		add := func(way string, limit time.Duration) {
			out = append(out, window{phase + "/" + way, reason, allowed, limit})
		}
		add(byWebhook, 0)
		add(byReview, ttl)
		add(byLegacy, ttl)
		add(byConstrained, ttl+memory)
		out = append(out, window{phase + "/" + byOther, "reload-changes-others", true, 0})
	}
	return out
}

// MaxOwnCache is how long an authorizer may remember at most: the level has an end.
const MaxOwnCache = time.Minute

// limit is how long a window may be, in all.
func (w window) limit(ownCache time.Duration) time.Duration { return w.Limit + ownCache + slack }

// revoke takes grants away from some users and gives them back, and measures how long each way of asking takes to
// notice.
func (c *cluster) revoke(ctx context.Context, progress func(string, int)) error {
	progress(revocation, len(windows()))
	n := c.plan.Policy.Probe
	if err := c.target.ReloadAuthorizer(ctx, c.authorizer(place{position: target.First})); err != nil {
		return err
	}
	direct, err := c.webhook.client(false)
	if err != nil {
		return err
	}
	defer direct.close()
	full := c.plan.Policy
	if err := c.o.Load(ctx, full); err != nil {
		return fmt.Errorf("loading the policy: %w", err)
	}
	defer func() { _ = c.o.Load(context.WithoutCancel(ctx), full) }() // also if a window is cut short
	for _, change := range []struct {
		phase string
		to    *policy.Policy
	}{{"revoked/", full.Without(n.Reader, n.Legacy, n.Constrained)}, {"granted/", full}} {
		// What is asked before the change is remembered beyond it.
		for _, w := range windows() {
			if strings.HasPrefix(w.ID, change.phase) {
				got, err := c.notice(ctx, direct, w)
				if err != nil || !got && change.phase == "revoked/" {
					c.unready(w, got, err)
					return ctx.Err()
				}
			}
		}
		if err := c.o.Load(ctx, change.to); err != nil {
			return fmt.Errorf("loading a policy: %w", err)
		}
		c.watch(ctx, direct, change.phase, time.Now())
		if err := errors.Join(ctx.Err(), c.target.Err()); err != nil {
			return err
		}
	}
	return nil
}

// unready says that a window cannot be measured, as it is not open at first.
func (c *cluster) unready(w window, got bool, err error) {
	seen := &Seen{Error: fmt.Sprintf("before the change allowed was %t", got)}
	if err != nil {
		seen.Error = word(firstLine(err))
	}
	c.out = append(c.out, Answer{Check: revocation, Vector: w.ID, Seen: seen})
}

// watch asks in every way of a phase until all have noticed the change, or it has taken too long.
func (c *cluster) watch(ctx context.Context, direct *client, phase string, since time.Time) {
	open := map[string]window{}
	for _, w := range windows() {
		if strings.HasPrefix(w.ID, phase) {
			open[w.ID] = w
		}
	}
	for len(open) > 0 && ctx.Err() == nil {
		for id, w := range open {
			got, err := c.notice(ctx, direct, w)
			took := time.Since(since)
			limit := w.limit(c.o.OwnCache)
			seen := &Seen{Got: fmt.Sprint(got), Window: took.Milliseconds(), Limit: limit.Milliseconds()}
			switch {
			case err != nil:
				seen.Error = word(firstLine(err))
			case got != w.Allowed && took < limit+timeoutBeyond:
				continue
			}
			c.out = append(c.out, Answer{Check: revocation, Vector: w.ID, Seen: seen})
			delete(open, id)
		}
		clusters.Pause(ctx, poll)
	}
}

func (c *cluster) notice(ctx context.Context, direct *client, w window) (bool, error) {
	n := c.plan.Policy.Probe
	question := on(n.Reader, "get", "", "pods", n.Namespace, "revoked")
	_, way, _ := strings.Cut(w.ID, "/")
	switch way {
	case byWebhook, byOther:
		if way == byOther {
			question = on(n.Wide, "get", "", "pods", n.Namespace, "revoked")
		}
		a := direct.ask(ctx, revocation, Question{ID: w.ID, Spec: question})
		if a.Fault != "" {
			return false, errors.New(a.Fault)
		}
		return a.decision() == scenarios.Allow, nil
	case byReview:
		seen := c.review(ctx, question)
		if seen.Error != "" {
			return false, errors.New(seen.Error)
		}
		return seen.Got == string(scenarios.Allow), nil
	case byLegacy:
		return c.impersonates(ctx, n.Legacy, &scenarios.Request{Verb: "get", Path: "/version"})
	}
	return c.impersonates(ctx, n.Constrained, &scenarios.Request{Verb: "list", Resource: "pods", Namespace: n.Namespace})
}

// impersonates sends a request as the target of impersonation, and says whether the user was let to. What the
// target may do is another question.
func (c *cluster) impersonates(ctx context.Context, user string, r *scenarios.Request) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout+slack)
	defer cancel()
	h, err := c.target.UserClient(scenarios.Requestor{User: user}, &scenarios.Impersonate{User: c.plan.Policy.Probe.Target}, func(*http.Request) {})
	if err != nil {
		return false, err
	}
	req, err := replay.NewRequest(ctx, c.target.Host(), r)
	if err != nil {
		return false, err
	}
	var o verdicts.Observation
	// Observed, so that it is not counted for the next scenario.
	if err := c.target.Observe(ctx, &o, func() (err error) {
		o.Response, err = replay.RoundTrip(h, req, false)
		return err
	}); err != nil {
		return false, err
	}
	// A refusal of the impersonation names the impersonator, one of the request the impersonated user.
	return o.Response.Code != http.StatusForbidden || !strings.Contains(o.Response.Body, user), nil
}
