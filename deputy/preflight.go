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

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// workers is how many requests are under way at once.
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
	// Run begins the markers of what was sent through a proxy.
	Run   string         `json:"run,omitempty"`
	Pairs []pairEvidence `json:"pairs"`
	// Rules are the reviews of one user in one namespace, each read once.
	Rules map[string]*verdicts.Observation `json:"rules"`
}

// pairEvidence is a question as a review and as the request itself.
type pairEvidence struct {
	Said *verdicts.Observation `json:"said"`
	Did  *verdicts.Observation `json:"did"`
}

// preflight asks every question in three ways: what self-subject reviews say is held against what requests do.
func (p *plane) preflight(ctx context.Context, f *fixture, pairs []pair) (*preflightEvidence, error) {
	e := &preflightEvidence{Pairs: make([]pairEvidence, len(pairs)), Rules: map[string]*verdicts.Observation{}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i, q := range pairs {
		group.Go(func() (err error) {
			one := &e.Pairs[i]
			if one.Said, err = p.ask(ctx, q.who, q.review()); err == nil {
				one.Did, err = p.ask(ctx, q.who, q.request())
			}
			if err == nil {
				one.Did.Audit, err = p.Audit(ctx, one.Did.Response.AuditID)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
			return nil
		})
	}
	for key, q := range f.ruled(pairs) {
		group.Go(func() error {
			o, err := p.ask(ctx, q.who, f.rules(q))
			p.mu.Lock()
			defer p.mu.Unlock()
			e.Rules[key] = o
			return err
		})
	}
	return e, group.Wait()
}

// judge compares the answers to every question. An error says that the evidence is not that of the questions.
func (e *preflightEvidence) judge(part *Part, f *fixture, pairs []pair) error {
	rules := f.ruled(pairs)
	if len(e.Pairs) != len(pairs) || len(e.Rules) != len(rules) {
		return fmt.Errorf("there is evidence of %d questions and %d rules reviews, the command line asks for %d and %d", len(e.Pairs), len(e.Rules), len(pairs), len(rules))
	}
	for key, q := range rules {
		if err := part.sent(q.who, f.rules(q), e.Rules[key]); err != nil {
			return fmt.Errorf("the rules of %s: %w", key, err)
		}
	}
	for i, q := range pairs {
		one := e.Pairs[i]
		if err := errors.Join(part.sent(q.who, q.review(), one.Said), part.sent(q.who, q.request(), one.Did)); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		part.Checks++
		said, status, err := reviewed(one.Said)
		did, err2 := decided(q, one.Did, part.Impersonation == "constrained")
		listed, err3 := listed(q, e.Rules[f.key(q)])
		if err := errors.Join(err, err2, err3); err != nil {
			part.fail("%s: %v", q, err)
			continue
		}
		part.Outcomes[string(did)]++
		for _, why := range judge(q, f.granted(q), said, did, listed, status) {
			part.fail("%s: %s", q, why)
		}
	}
	return nil
}

// judge says which answers contradict each other. granted is what the fixture says.
func judge(p pair, granted bool, said, did, listed answer, status authorizationv1.SubjectAccessReviewStatus) (wrong []string) {
	want := no
	switch {
	case !p.who.reachable:
		want = unreachable
	case granted:
		want = yes
	}
	if said != did {
		wrong = append(wrong, fmt.Sprintf("the pre-flight says %q, the request is %q", said, did))
	}
	if listed != did {
		wrong = append(wrong, fmt.Sprintf("by the rules review it is %q, the request is %q", listed, did))
	}
	if did != want {
		wrong = append(wrong, fmt.Sprintf("the request is %q, by the grants %q", did, want))
	}
	switch said {
	case yes:
		if !strings.HasPrefix(status.Reason, "RBAC: allowed by ") {
			wrong = append(wrong, fmt.Sprintf("the pre-flight says yes with the reason %q", status.Reason))
		}
	case no:
		if status.Reason != "" || status.Denied || status.EvaluationError != "" {
			wrong = append(wrong, fmt.Sprintf("the pre-flight says no with reason %q, denied=%v, error %q", status.Reason, status.Denied, status.EvaluationError))
		}
	}
	return wrong
}

// review is the request of the pre-flight.
func (p pair) review() *scenarios.Request {
	return selfReview("SelfSubjectAccessReview", map[string]any{"resourceAttributes": p.attributes()})
}

func selfReview(kind string, spec map[string]any) *scenarios.Request {
	return &scenarios.Request{
		Verb: "create", APIGroup: "authorization.k8s.io", Version: "v1", Resource: strings.ToLower(kind) + "s",
		Body: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec},
	}
}

// reviewed is what a review says.
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
		return "", fmt.Errorf("the review was answered %d: %.200s", o.Response.Code, o.Response.Body)
	}
	return yes, json.Unmarshal([]byte(o.Response.Body), review)
}

// request is the real one, on trial: what it is told is what authorization
// decided, whatever comes behind it (a missing object, an empty body).
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
func decided(p pair, o *verdicts.Observation, constrained bool) (answer, error) {
	e := verdicts.AuditOf(o)
	switch {
	case e == nil || string(e.AuditID) != o.Response.AuditID:
		return "", errors.New("the request has no audit event")
	case e.ImpersonatedUser == nil:
		return unreachable, nil
	case e.ImpersonatedUser.Username != p.who.name:
		return "", fmt.Errorf("it was made as %q", e.ImpersonatedUser.Username)
	case (verdicts.ConstraintOf(e) != "") != constrained:
		return "", fmt.Errorf("it was impersonated by the constraint %q", verdicts.ConstraintOf(e))
	case decision(*e) == "allow":
		return yes, nil
	case decision(*e) == "forbid":
		return no, nil
	}
	return "", fmt.Errorf("its audit event has the decision %q", decision(*e))
}

// key names whose rules in which namespace a question is about: cluster-wide rules are in each.
func (f *fixture) key(p pair) string {
	return p.who.name + "/" + cmp.Or(p.namespace, f.namespaces[0])
}

// ruled are questions by whose rules they are about, one for each.
func (f *fixture) ruled(pairs []pair) map[string]pair {
	out := map[string]pair{}
	for _, p := range pairs {
		if _, ok := out[f.key(p)]; !ok {
			out[f.key(p)] = p
		}
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
	a, err := answered(o, &review)
	if err != nil || a != yes {
		return a, err
	}
	if slices.ContainsFunc(review.Status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
		g := scenarios.Grant{Subject: scenarios.Subject{User: p.who.name}, Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, Names: rule.ResourceNames}
		return g.Covers(authorizationv1.SubjectAccessReviewSpec{User: p.who.name, ResourceAttributes: p.attributes()})
	}) {
		return yes, nil
	}
	return no, nil
}
