// Package verification tries advised permissions on a real API server before anybody relies on them. On a control plane
// that has only these permissions it sends everything again that an audit log contains, and also what must not be
// allowed. The audit events decide: who was impersonated, and with which constraint. A running cluster is only asked
// access reviews, so that nothing that somebody deleted is deleted again.
package verification

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"github.com/authzconf/authzconf/advice"
	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/oracle"
	"github.com/authzconf/authzconf/scenarios"
)

// senders is how many requests are sent at the same time.
const senders = 8

// Options say what is verified.
type Options struct {
	// Target is the control plane to start. Its gate has to be on.
	Target    server.Options
	Manifests []byte // the advised objects as they are printed
	// Seen must be allowed, each in its mode. Neighbours must be denied.
	Seen       []advice.ObservedImpersonation
	Neighbours []advice.Neighbour
	// Progress receives lines. It must not be nil.
	Progress func(string)
}

// Findings are the result of a verification.
type Findings struct {
	Version string // the API server's
	// Allowed and Denied are how many requests were answered correctly in either way.
	Allowed, Denied int
	// Wrong says what was answered differently.
	Wrong []string
	// Otherwise counts, for a running cluster, what was seen and is allowed there by another mode or not at all.
	Otherwise map[string]int
}

// Run verifies advised permissions. An error is one of the environment, or one that the user can fix.
func Run(ctx context.Context, o Options) (_ *Findings, err error) {
	var manifests []map[string]any
	if len(o.Manifests) > 0 {
		if manifests, err = scenarios.Manifests("advice", o.Manifests); err != nil {
			return nil, err
		}
	}
	t, err := server.Start(ctx, o.Target)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Stop()) }()
	r, err := replay.New(t)
	if err != nil {
		return nil, err
	}
	o.Progress(fmt.Sprintf("%s ready, gate %s", t.Witness.GitVersion, t.Facts.Gate))
	if _, err := r.Provision(ctx, &scenarios.Scenario{ID: "advice", Manifests: manifests}); err != nil {
		return nil, fmt.Errorf("applying the advised objects: %w", err)
	}
	o.Progress(fmt.Sprintf("%d objects applied and in force", len(manifests)))
	run := &run{target: t, findings: &Findings{Version: t.Witness.GitVersion}}
	if err := run.verifyAll(ctx, o); err != nil {
		return nil, err
	}
	return run.findings, t.Err()
}

// Review compares a running cluster with what was seen and with its neighbours, by the answers of its authorizers to
// the reviews of every mode. It sends and creates nothing else. model is the model of the cluster's API server, with
// the cluster as its authorizer.
func Review(
	ctx context.Context,
	model *oracle.Server,
	observations []advice.ObservedImpersonation,
	neighbours []advice.Neighbour,
) (*Findings, error) {
	run := &run{server: model, findings: &Findings{Otherwise: map[string]int{}}}
	err := run.verifyAll(ctx, Options{Seen: observations, Neighbours: neighbours})
	return run.findings, err
}

type run struct {
	target *server.Server // gets requests; with server, reviews are asked instead
	server *oracle.Server

	mu       sync.Mutex
	findings *Findings
}

func (r *run) verifyAll(ctx context.Context, o Options) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(senders)
	for _, s := range o.Seen {
		if s.Mode == "" {
			continue
		}
		group.Go(func() error { return r.verify(ctx, s, "") })
	}
	for _, n := range o.Neighbours {
		group.Go(func() error { return r.verify(ctx, n.ObservedImpersonation, n.Differs) })
	}
	err := group.Wait()
	slices.Sort(r.findings.Wrong)
	return err
}

// reviewModes finds out by which modes the requestor may do it now, and judges that.
func (r *run) reviewModes(s advice.ObservedImpersonation, differs string) {
	var by, lacking []string
	for _, need := range r.server.Missing(oracle.Authenticated(s.Requestor), &s.As, oracle.RequestOf(httpForm(s.Sendable()))) {
		if need.Refused == "" && len(need.Grants) == 0 {
			by = append(by, string(need.Mode))
		}
		for _, g := range need.Grants {
			if need.Mode == s.Mode {
				lacking = append(lacking, strings.Join(slices.Concat(g.Verbs, g.Resources, g.NonResourceURLs, g.Names), " "))
			}
		}
	}
	instead := cmp.Or(strings.Join(by, ", "), "nothing")
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case differs == "" && slices.Contains(by, string(s.Mode)):
		r.findings.Allowed++
	case differs == "":
		r.findings.Otherwise[instead]++
		r.findings.Wrong = append(r.findings.Wrong,
			fmt.Sprintf(
				"%s was seen, and is allowed by %s, not by %s, which lacks %s",
				s,
				instead,
				s.Mode,
				cmp.Or(strings.Join(lacking, "; "), "the gate"),
			),
		)
	case len(by) == 0:
		r.findings.Denied++
	default:
		r.findings.Wrong = append(r.findings.Wrong, fmt.Sprintf("%s was not seen (another %s), and is allowed by %s", s, differs, instead))
	}
}

// verify sends a request and judges the answer. differs is empty if the request must be allowed.
func (r *run) verify(ctx context.Context, s advice.ObservedImpersonation, differs string) error {
	if r.server != nil {
		r.reviewModes(s, differs)
		return ctx.Err()
	}
	e, code, err := r.send(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	constraint := "impersonate:" + string(s.Mode)
	isImpersonated := e.ImpersonatedUser != nil && scenarios.ConstraintOf(e) == constraint &&
		isUser(e.ImpersonatedUser, oracle.Resulting(s.Mode, &s.As))
	switch {
	case differs == "" && isImpersonated:
		r.findings.Allowed++
	case differs == "":
		r.findings.Wrong = append(r.findings.Wrong,
			fmt.Sprintf(
				"%s was seen, and is not allowed by %s: code %d, constraint %q: %s",
				s,
				constraint,
				code,
				scenarios.ConstraintOf(e),
				ptr.Deref(e.ResponseStatus, metav1.Status{}).Message,
			),
		)
	case e.ImpersonatedUser == nil && code == http.StatusForbidden:
		r.findings.Denied++
	default:
		r.findings.Wrong = append(r.findings.Wrong,
			fmt.Sprintf(
				"%s was not seen (another %s), and is not denied: code %d, constraint %q",
				s,
				differs,
				code,
				scenarios.ConstraintOf(e),
			),
		)
	}
	return nil
}

// isUser reports whether an event names a user with all attributes.
func isUser(got *authenticationv1.UserInfo, want scenarios.User) bool {
	return scenarios.UserOf(got.Username, got.UID, got.Groups, got.Extra).Render() == want.Render()
}

// send sends a request as its requestor, and waits for its audit event. The request has no effect, because the
// impersonated user has hardly any permission on this control plane.
func (r *run) send(ctx context.Context, s advice.ObservedImpersonation) (*auditv1.Event, int, error) {
	request := httpForm(s.Sendable())
	req, err := replay.NewRequest(ctx, r.target.Host(), request)
	if err != nil {
		return nil, 0, err
	}
	client, err := r.target.UserClient(
		scenarios.Requestor{User: s.Requestor.Name, Groups: s.Requestor.Groups, Extra: s.Requestor.Extra},
		&s.As,
		func(*http.Request) {},
	)
	if err != nil {
		return nil, 0, err
	}
	answer, err := replay.RoundTrip(client, req, request.Verb == "watch")
	if err != nil {
		return nil, 0, err
	}
	raw, err := r.target.Audit(ctx, answer.AuditID)
	if err != nil {
		return nil, 0, err
	}
	var e auditv1.Event
	return &e, answer.Code, json.Unmarshal(raw, &e)
}

// httpForm returns an action as a request. A name becomes a selector if the verb has no other place for it.
func httpForm(a advice.Action) *scenarios.Request {
	r := &scenarios.Request{
		Verb: a.Verb, Path: a.Path, APIGroup: a.APIGroup, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
		Namespace: a.Namespace, Name: a.Name,
	}
	takesSelector := a.Verb == "list" || a.Verb == "watch"
	if takesSelector && a.Name != "" {
		r.Name, r.FieldSelector = "", "metadata.name="+a.Name
	}
	if a.Resource == "namespaces" && a.Namespace == a.Name {
		r.Namespace = "" // its path has it once
	}
	return r
}
