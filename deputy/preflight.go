package deputy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/scenarios"
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

// preflight holds what self-subject reviews say against what requests do.
type preflight struct {
	plane   *plane
	fixture *fixture

	// rules are those of one user in one namespace, each read once.
	rules sync.Map

	mu   sync.Mutex
	part *Part
}

// rules are what a review lists, or why it lists nothing.
type rules struct {
	status authorizationv1.SubjectRulesReviewStatus
	answer answer
}

func (f *preflight) run(ctx context.Context, pairs []pair) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, p := range pairs {
		group.Go(func() error { return f.pair(ctx, p) })
	}
	return group.Wait()
}

// pair asks in three ways, and judges.
func (f *preflight) pair(ctx context.Context, p pair) error {
	said, status, err := f.review(ctx, p)
	if err != nil {
		return fmt.Errorf("%s: the review: %w", p, err)
	}
	did, err := f.request(ctx, p)
	if err != nil {
		return fmt.Errorf("%s: the request: %w", p, err)
	}
	listed, err := f.listed(ctx, p)
	if err != nil {
		return fmt.Errorf("%s: the rules: %w", p, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.part.Checks++
	f.part.Outcomes[string(did)]++
	for _, why := range judge(p, f.fixture.granted(p), said, did, listed, status) {
		f.part.fail("%s: %s", p, why)
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

// review is the pre-flight.
func (f *preflight) review(ctx context.Context, p pair) (answer, authorizationv1.SubjectAccessReviewStatus, error) {
	got, err := f.as(p.who).SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: p.attributes()},
	}, metav1.CreateOptions{})
	a, err := answered(err)
	if a == yes && !got.Status.Allowed {
		a = no
	}
	return a, got.Status, err
}

// as is a client for the reviews of a person.
func (f *preflight) as(who person) authorizationv1client.AuthorizationV1Interface {
	c, err := authorizationv1client.NewForConfigAndClient(&rest.Config{Host: f.plane.url.String(), QPS: -1}, f.plane.as(who))
	if err != nil {
		panic(err) // the host is one that clients were made for before
	}
	return c
}

// answered says whether a review was answered, or the proxy may not ask for this person.
func answered(err error) (answer, error) {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate"):
		return unreachable, nil
	case err != nil:
		return "", err
	}
	return yes, nil
}

// request sends the real one, on trial: what it is told is what authorization
// decided, whatever comes behind it (a missing object, an empty body). It is judged
// by the audit event, for admission refuses in words like those of authorization.
func (f *preflight) request(ctx context.Context, p pair) (answer, error) {
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
	req, err := replay.NewRequest(ctx, f.plane.url.String(), r)
	if err != nil {
		return "", err
	}
	got, err := replay.RoundTrip(f.plane.as(p.who), req, p.verb == "watch")
	if err != nil {
		return "", err
	}
	e, err := f.plane.event(ctx, got.AuditID)
	switch {
	case err != nil:
		return "", err
	case e.ImpersonatedUser == nil:
		return unreachable, nil
	case e.ImpersonatedUser.Username != p.who.name:
		return "", fmt.Errorf("it was made as %q", e.ImpersonatedUser.Username)
	case decision(e) == "allow":
		return yes, nil
	case decision(e) == "forbid":
		return no, nil
	}
	return "", fmt.Errorf("its audit event has the decision %q", decision(e))
}

// listed evaluates the rules of a SelfSubjectRulesReview as a client would.
func (f *preflight) listed(ctx context.Context, p pair) (answer, error) {
	namespace := p.namespace
	if namespace == "" {
		namespace = f.fixture.namespaces[0] // cluster-wide rules are in each
	}
	read, _ := f.rules.LoadOrStore(p.who.name+"/"+namespace, sync.OnceValues(func() (rules, error) {
		review, err := f.as(p.who).SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
		}, metav1.CreateOptions{})
		a, err := answered(err)
		return rules{review.Status, a}, err
	}))
	r, err := read.(func() (rules, error))()
	if err != nil || r.answer != yes {
		return r.answer, err
	}
	if slices.ContainsFunc(r.status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
		g := scenarios.Grant{Subject: scenarios.Subject{User: p.who.name}, Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, Names: rule.ResourceNames}
		return g.Covers(authorizationv1.SubjectAccessReviewSpec{User: p.who.name, ResourceAttributes: p.attributes()})
	}) {
		return yes, nil
	}
	return no, nil
}
