package certify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Measured is what some levels have beside findings.
type Measured struct {
	// NotSupported says why the level cannot be tried with what the vendor gives.
	NotSupported string `json:"notSupported,omitempty"`
	// Inconclusive says why nothing can be said although all was tried.
	Inconclusive string `json:"inconclusive,omitempty"`
	// Rates are those of level load, Windows those of level revocation.
	Rates   []Rate           `json:"rates,omitempty"`
	Windows []MeasuredWindow `json:"windows,omitempty"`
}

// MeasuredWindow is how long it took until a change of policy was noticed.
type MeasuredWindow struct {
	Name   string `json:"name"`
	Millis int64  `json:"ms"`
	Limit  int64  `json:"limitMs"`
}

// Conclude grants the level if it is complete and nothing stands against it.
func (r LevelResult) Conclude(complete bool, findings []Finding) LevelResult {
	r.Findings += seq.Count(findings, func(f Finding) bool { return f.Level == r.Level && !f.Advice })
	r.Granted = complete && r.Findings == 0 && r.Planned > 0 && r.Inconclusive == "" && r.NotSupported == ""
	return r
}

// Verdict says in a word what became of the level.
func (r LevelResult) Verdict() string {
	switch {
	case r.Granted:
		return "yes"
	case r.Reviews == 0 && r.Findings == 0 && r.NotSupported == "":
		return "not tried"
	case r.Inconclusive != "" && r.Findings == 0:
		return "inconclusive"
	}
	return "no"
}

// measured are the results of the levels beyond direct mode that were tried.
func (b *Plan) measured(answers []Answer, findings []Finding) (out []LevelResult) {
	rates, planned, answered := b.rates(ownOnly(answers))
	soaked := slices.IndexFunc(rates, func(r Rate) bool { return r.Soak > 0 })
	if load := slices.DeleteFunc(slices.Clone(rates), func(r Rate) bool { return r.Soak > 0 }); len(load) > 0 {
		r := LevelResult{Level: Load, Planned: planned, Reviews: answered, Measured: Measured{Rates: load}}
		r.Inconclusive = cmp.Or(late(load), lessThanLoad(load, answers))
		out = append(out, r.Conclude(answered >= planned, findings))
	}
	if soaked >= 0 {
		s := rates[soaked]
		r := LevelResult{Level: Soak, Planned: int(s.Soak * float64(s.Asked)), Measured: Measured{Rates: []Rate{s}, Inconclusive: late([]Rate{s})}}
		r.Reviews = len(slices.DeleteFunc(ownOnly(answers), func(a Answer) bool { return a.Check != soak || a.Stage != nil }))
		if s.Soak < SoakLength.Seconds() || s.Asked < SoakRate {
			r.Inconclusive = cmp.Or(r.Inconclusive, fmt.Sprintf("the level is %s at %d reviews/s or more", SoakLength, SoakRate))
		}
		out = append(out, r.Conclude(r.Reviews >= r.Planned, findings))
	}
	seen := map[about]bool{}
	results := map[string]*LevelResult{}
	for _, a := range answers {
		if a.Seen == nil || a.Control {
			continue
		}
		r := cmp.Or(results[a.Check], &LevelResult{Level: CertificationLevel(a.Check)})
		results[a.Check] = r
		switch key := (about{a.Check, a.Vector}); {
		case a.Seen.Cell != nil:
		case a.Seen.NotSupported != "":
			r.NotSupported = a.Seen.NotSupported
		case !seen[key]:
			seen[key] = true
			if j, err := b.judgeSeen(a); err == nil && !j.unclear {
				r.Reviews++
			}
			if a.Check == revocation {
				r.Windows = append(r.Windows, MeasuredWindow{a.Vector, a.Seen.Window, a.Seen.Limit})
			}
		}
	}
	needed := map[string]int{inCluster: 0, revocation: len(windows())}
	if results[inCluster] != nil {
		needed[inCluster] = len(b.clusterChecks())
	}
	for _, check := range []string{inCluster, revocation} {
		if r := results[check]; r != nil {
			slices.SortFunc(r.Windows, func(x, y MeasuredWindow) int {
				return cmp.Or(-strings.Compare(x.Name[:6], y.Name[:6]), cmp.Compare(x.Millis, y.Millis), strings.Compare(x.Name, y.Name))
			})
			r.Planned = needed[check]
			out = append(out, r.Conclude(r.Reviews >= r.Planned, findings))
		}
	}
	return out
}

func late(rates []Rate) string {
	if slices.ContainsFunc(rates, func(r Rate) bool { return r.Inconclusive }) {
		return "the harness was late itself at a rate"
	}
	return ""
}

// lessThanLoad says what was asked for that is less than the level.
func lessThanLoad(rates []Rate, answers []Answer) string {
	enough := map[string]bool{}
	for _, a := range answers {
		if s := a.Stage; s != nil && !a.Control {
			enough["volume"] = enough["volume"] || a.Check == volume && s.Planned >= LoadVolume
			enough["idle"] = enough["idle"] || a.Check == idle && s.IdleMs >= LoadIdle.Milliseconds()
		}
	}
	for _, r := range rates {
		enough["rate"] = enough["rate"] || r.Asked >= LoadLeast
		enough["limit"] = enough["limit"] || r.Limit > float64(LoadP99.Milliseconds())
	}
	if enough["volume"] && enough["idle"] && enough["rate"] && !enough["limit"] {
		return ""
	}
	return fmt.Sprintf("the level is %d reviews/s or more with 99 %% of the answers within %s, then %d more, and some after %s without any", LoadLeast, LoadP99, LoadVolume, LoadIdle)
}

// Terms are what a badge says beside the level, for those that are measured.
func (r LevelResult) Terms() string {
	switch {
	case r.Level == Soak:
		return fmt.Sprintf(" %.0f min at %d/s", r.Rates[0].Soak/60, r.Rates[0].Asked)
	case r.Level == Load:
		best := slices.MaxFunc(r.Rates, func(x, y Rate) int { return cmp.Compare(x.Asked, y.Asked) })
		return fmt.Sprintf(" %d/s, p99 < %.0f ms", best.Asked, best.Limit)
	case len(r.Windows) > 0:
		longest := slices.MaxFunc(r.Windows, func(x, y MeasuredWindow) int { return cmp.Compare(x.Limit, y.Limit) })
		return fmt.Sprintf(" within %.0f s", float64(longest.Limit)/1000)
	}
	return ""
}

// ownOnly leaves out what the reference answered.
func ownOnly(answers []Answer) []Answer {
	return slices.DeleteFunc(slices.Clone(answers), func(a Answer) bool { return a.Control })
}

// Lines say in words what was measured, and why there may be nothing.
func (r LevelResult) Lines() (out []string) {
	line := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("%s: "+format, append([]any{r.Level}, args...)...))
	}
	if r.NotSupported != "" {
		line("not supported: %s", r.NotSupported)
	}
	if r.Inconclusive != "" {
		line("inconclusive: %s", r.Inconclusive)
	}
	for _, a := range r.Rates {
		line("%d reviews/s: %.1f achieved, p50 %.2f ms, p99 %.2f ms (limit %.2f ms), max %.2f ms, %d wrong, %d late, %d dropped",
			a.Asked, a.Achieved, a.P50, a.P99, a.Limit, a.Max, a.Wrong, a.Late, a.Dropped)
		if a.Soak > 0 { // the only one of its level
			line("%.0f s, p99 of each tenth in ms %v, memory in bytes %v (0 is not known)", a.Soak, a.P99s, a.Memory)
		}
	}
	for _, w := range r.Windows {
		line("%s: noticed after %d ms (limit %d ms)", w.Name, w.Millis, w.Limit)
	}
	return out
}

// impersonationTTL is how long an API server remembers a constrained impersonation that succeeded:
// newImpersonationCache of k8s.io/apiserver/pkg/endpoints/filters/impersonation/cache.go.
const impersonationTTL = 10 * time.Second

// timeoutBeyond is how much longer than allowed a window is watched.
const timeoutBeyond = 5 * time.Second

// window is something that a change of policy has to reach within a time.
type window struct {
	ID      string
	Reason  string
	Allowed bool // what is waited for
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

// revoke takes grants from some users, gives them back, and measures how long each way of asking takes to notice.
func (c *cluster) revoke(ctx context.Context, progress func(string, int)) error {
	progress(revocation, len(windows()))
	n := c.plan.Policy.Probe
	if err := c.target.ReloadAuthorizer(ctx, c.authorizer(place{position: server.First})); err != nil {
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

// impersonates sends a request as the target, and says whether that was let, whatever the target itself may do.
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
