package deputy

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
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

const workers = 16

// answer is what became of one way to ask.
type answer string

const (
	yes answer = "allowed"
	no  answer = "forbidden"
	// unreachable: the proxy may not impersonate for this.
	unreachable answer = "not for the proxy"
)

// preflightEvidence is what was seen of the pre-flight, in the order of its questions.
type preflightEvidence struct {
	// Run begins the markers of what was sent.
	Run   string         `json:"run"`
	Pairs []pairEvidence `json:"pairs"`
	// Rules are the reviews of one user in one namespace, each read once.
	Rules map[string]*verdicts.Observation `json:"rules"`
	// Visits are those to the pages of a dashboard, in each way to open them.
	Visits []visitEvidence `json:"visits"`
}

// pairEvidence is a question as a review and as the request itself.
type pairEvidence struct {
	Said *verdicts.Observation `json:"said"`
	Did  *verdicts.Observation `json:"did"`
}

// preflight asks every question through whoever acts for people, as a review and as the request itself.
func (ep *endpoint) preflight(ctx context.Context, s *suite) (_ *preflightEvidence, err error) {
	e := &preflightEvidence{Run: newRun(), Pairs: make([]pairEvidence, len(s.pairs)), Rules: map[string]*verdicts.Observation{}}
	if e.Visits, err = ep.visit(ctx, s, e.Run); err != nil { // before anything is remembered of anybody
		return nil, err
	}
	clients := map[*Identity]*http.Client{}
	for _, who := range s.fixture.people {
		clients[who] = ep.client(who)
		defer clients[who].CloseIdleConnections()
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i, q := range s.pairs {
		group.Go(func() (err error) {
			one := &e.Pairs[i]
			if one.Said, err = ep.ask(groupCtx, clients[q.who], q.who, q.review(), markerOf(e.Run, i, "said")); err == nil {
				one.Did, err = ep.ask(groupCtx, clients[q.who], q.who, q.request(), markerOf(e.Run, i, "did"))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
			return nil
		})
	}
	var mu sync.Mutex
	for key, q := range s.fixture.ruled(s.pairs) {
		group.Go(func() error {
			o, err := ep.ask(groupCtx, clients[q.who], q.who, s.fixture.rules(q), e.Run+"-"+key)
			mu.Lock()
			defer mu.Unlock()
			e.Rules[key] = o
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	events, err := ep.trail.since(ctx, e.Run, `"auditID"`)
	if err != nil {
		return nil, err
	}
	at := map[string]json.RawMessage{}
	for _, raw := range events {
		if ev := decode(raw); ev != nil {
			at[string(ev.AuditID)], at[ev.UserAgent] = raw, raw
		}
	}
	for i := range e.Pairs {
		did := e.Pairs[i].Did
		if did.Audit = at[did.Response.AuditID]; did.Audit == nil {
			did.Audit = at[markerOf(e.Run, i, "did")]
		}
	}
	return e, nil
}

// ask sends a request of a person. The marker is its user agent and audit ID, if who acts for the person lets it be. It
// has no limit of its own: it is the API server that is tested.
func (ep *endpoint) ask(ctx context.Context, client *http.Client, who *Identity, r *scenarios.Request, marker string) (*verdicts.Observation, error) {
	req, err := replay.NewRequest(ctx, ep.url.String(), r)
	if err != nil {
		return nil, err
	}
	o := &verdicts.Observation{}
	if who.public {
		who.set(req.Header)
	}
	replay.Record(&o.Request, req)
	if !who.public {
		who.set(req.Header)
	}
	o.Request.URL = strings.TrimPrefix(o.Request.URL, ep.url.Path)
	o.Request.Requestor, o.Request.Credential = who.Name, &scenarios.User{Name: who.Name}
	req.Header.Set("User-Agent", marker)
	req.Header.Set("Audit-Id", marker)
	o.Sent = time.Now()
	o.Response, err = replay.RoundTrip(client, req, r.Verb == "watch")
	o.Answered = time.Now()
	if err != nil && !who.public && ctx.Err() == nil { // somebody's proxy: whether it arrived is judged all the same
		o.Response.Broken, o.Response.AuditID, err = err.Error(), marker, nil
	}
	return o, err
}

// sent holds what was recorded of a request to the one that was to be sent, while the part ran, with its own audit ID.
func (p *Part) sent(who *Identity, r *scenarios.Request, o *verdicts.Observation) error {
	if o == nil {
		return errors.New("there is no evidence of it")
	}
	if why := verdicts.NotSent(who.as(r), scenarios.Requestor{User: who.Name}, o); why != "" {
		return errors.New(why)
	}
	if p.began.After(o.Sent) || o.Answered.Before(o.Sent) || o.Answered.After(p.ended) {
		return errors.New("it was not under way while its part of the suite was")
	}
	return p.once(o.Response.AuditID)
}

func (p *Part) once(auditID string) error {
	if p.ids[auditID] {
		return fmt.Errorf("its audit ID %s is also one of another request", auditID)
	}
	p.ids[auditID] = true
	return nil
}

// judge holds what was shown to what was done, and both to the grants where they are ours.
func (e *preflightEvidence) judge(part *Part, s *suite) error {
	rules := s.fixture.ruled(s.pairs)
	if len(e.Pairs) != len(s.pairs) || len(e.Rules) != len(rules) {
		return fmt.Errorf("there is evidence of %d questions and %d rules reviews, the command line asks for %d and %d", len(e.Pairs), len(e.Rules), len(s.pairs), len(rules))
	}
	for key, q := range rules {
		if err := part.sent(q.who, s.fixture.rules(q), e.Rules[key]); err != nil {
			return fmt.Errorf("the rules of %s: %w", key, err)
		}
	}
	for i, q := range s.pairs {
		one := e.Pairs[i]
		if err := errors.Join(part.sent(q.who, q.review(), one.Said), part.sent(q.who, q.request(), one.Did)); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		part.Checks++
		said, status, err := reviewed(one.Said)
		did, err2 := s.decided(part, q, one.Did, markerOf(e.Run, i, "did"))
		listed, err3 := listed(q, e.Rules[s.fixture.key(q)])
		if err := errors.Join(err, err2, err3); err != nil {
			part.fail("%s: %v", q, err)
			continue
		}
		part.Outcomes[string(did)]++
		if s.kind == existingCluster { // with grants and authorizers that are not known
			if said != did {
				part.fail("%s: the pre-flight says %q, the request is %q", q, said, did)
			}
			continue
		}
		for _, why := range judge(q, s.fixture.granted(q), said, did, listed, status) {
			part.fail("%s: %s", q, why)
		}
	}
	return e.judgeVisits(part, s)
}

// judge says which answers contradict each other. granted is what the fixture says.
func judge(p pair, granted bool, said, did, listed answer, status authorizationv1.SubjectAccessReviewStatus) (wrong []string) {
	want := no
	switch {
	case p.who.outOfReach:
		want = unreachable
	case granted:
		want = yes
	}
	for _, check := range []struct {
		bad bool
		why string
	}{
		{said != did, fmt.Sprintf("the pre-flight says %q, the request is %q", said, did)},
		{listed != did, fmt.Sprintf("by the rules review it is %q, the request is %q", listed, did)},
		{did != want, fmt.Sprintf("the request is %q, by the grants %q", did, want)},
		{said == yes && !strings.HasPrefix(status.Reason, "RBAC: allowed by "), fmt.Sprintf("the pre-flight says yes with the reason %q", status.Reason)},
		{said == no && (status.Reason != "" || status.Denied || status.EvaluationError != ""),
			fmt.Sprintf("the pre-flight says no with reason %q, denied=%v, error %q", status.Reason, status.Denied, status.EvaluationError)},
	} {
		if check.bad {
			wrong = append(wrong, check.why)
		}
	}
	return wrong
}

func (p pair) review() *scenarios.Request {
	return selfReview("SelfSubjectAccessReview", map[string]any{"resourceAttributes": p.attributes()})
}

func selfReview(kind string, spec map[string]any) *scenarios.Request {
	return &scenarios.Request{
		Verb: "create", APIGroup: "authorization.k8s.io", Version: "v1", Resource: strings.ToLower(kind) + "s",
		Body: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec},
	}
}

func reviewed(o *verdicts.Observation) (answer, authorizationv1.SubjectAccessReviewStatus, error) {
	var got authorizationv1.SelfSubjectAccessReview
	a, err := answered(o, &got)
	if a == yes && !got.Status.Allowed {
		a = no
	}
	return a, got.Status, err
}

// answered reads the answer to a review, or says that the proxy may not ask for this person.
func answered(o *verdicts.Observation, review any) (answer, error) {
	st := verdicts.StatusOf(o.Response)
	switch {
	case o.Response.Code == http.StatusForbidden && st != nil && strings.Contains(st.Message, "cannot impersonate"):
		return unreachable, nil
	case o.Response.Code != http.StatusCreated:
		return "", fmt.Errorf("the review was answered %d: %.200s", o.Response.Code, cmp.Or(o.Response.Broken, o.Response.Body))
	}
	return yes, json.Unmarshal([]byte(o.Response.Body), review)
}

// request is the real one, on trial: what it is told is what authorization decided, whatever comes behind it.
func (p pair) request() *scenarios.Request {
	r := &scenarios.Request{
		Verb: p.verb, APIGroup: p.kind.group, Version: p.kind.version, Resource: p.kind.resource, Subresource: p.kind.sub,
		Namespace: p.namespace, Name: p.name, Query: map[string]string{},
	}
	switch p.verb {
	case "create", "update", "patch":
		r.Body = map[string]any{}
		r.Query["dryRun"] = "All"
	case "delete", "deletecollection":
		r.Query["dryRun"] = "All"
	}
	return r
}

// decided is what became of a request, by its audit event: admission refuses in words like those of authorization.
func (s *suite) decided(part *Part, q pair, o *verdicts.Observation, marker string) (answer, error) {
	e := decode(o.Audit)
	switch {
	case e == nil:
		return "", fmt.Errorf("the request was answered %d and has no audit event: it did not arrive", o.Response.Code)
	case string(e.AuditID) == o.Response.AuditID:
		part.By["audit ID"]++
	case e.UserAgent == marker:
		part.By["user agent"]++
	default:
		return "", fmt.Errorf("the event %s is not that of this request", e.AuditID)
	}
	switch {
	case e.ImpersonatedUser == nil && decision(*e) == "":
		return unreachable, nil
	case arriving(e).Username != q.who.Name:
		return "", fmt.Errorf("it was made as %q", arriving(e).Username)
	case e.ImpersonatedUser != nil && s.kind != existingCluster && (verdicts.ConstraintOf(e) != "") != (s.kind == constrained):
		return "", fmt.Errorf("it was impersonated by the constraint %q", verdicts.ConstraintOf(e))
	case decision(*e) == "allow":
		return yes, nil
	case decision(*e) == "forbid":
		return no, nil
	}
	return "", fmt.Errorf("its audit event has the decision %q", decision(*e))
}

// key names whose rules in which namespace a question is about: cluster-wide rules are in each.
func (f *fixture) key(p pair) string { return p.who.Name + "/" + cmp.Or(p.namespace, f.namespaces[0]) }

// ruled are questions by whose rules they are about, one for each.
func (f *fixture) ruled(pairs []pair) map[string]pair {
	out := map[string]pair{}
	for _, p := range seq.UniqueBy(pairs, f.key) {
		out[f.key(p)] = p
	}
	return out
}

// rules is the request for the rules that a question is about.
func (f *fixture) rules(p pair) *scenarios.Request {
	return selfReview("SelfSubjectRulesReview", map[string]any{"namespace": cmp.Or(p.namespace, f.namespaces[0])})
}

// listed evaluates the rules of a SelfSubjectRulesReview as a client would.
func listed(p pair, o *verdicts.Observation) (answer, error) {
	var review authorizationv1.SelfSubjectRulesReview
	if a, err := answered(o, &review); err != nil || a != yes {
		return a, err
	}
	if slices.ContainsFunc(review.Status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
		g := scenarios.Grant{Subject: scenarios.Subject{User: p.who.Name}, Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, Names: rule.ResourceNames}
		return g.Covers(authorizationv1.SubjectAccessReviewSpec{User: p.who.Name, ResourceAttributes: p.attributes()})
	}) {
		return yes, nil
	}
	return no, nil
}
