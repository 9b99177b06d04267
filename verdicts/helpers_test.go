package verdicts

import (
	"encoding/json"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/authzconf/authzconf/scenarios"
)

// The tests in this file are about functions that rules use. TestJudgeNotices and TestEveryLeaf test what the rules
// find.

// TestContradictsGrants checks that a granted permission must be allowed and that nobody may impersonate without one.
// Ordinary verbs may be allowed by what every cluster grants.
func TestContradictsGrants(t *testing.T) {
	granted := []scenarios.Grant{
		{Subject: scenarios.Subject{User: "bob"}, Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"users", "pods"}},
	}
	for _, c := range []struct {
		user, verb, resource string
		decision             scenarios.Decision
		want                 bool
	}{
		{"bob", "list", "pods", scenarios.Allow, false},
		{"bob", "list", "pods", scenarios.NoOpinion, true},
		{"bob", "list", "pods", scenarios.Deny, true},
		{"bob", "impersonate", "users", scenarios.Allow, false},
		{"bob", "impersonate", "users", scenarios.NoOpinion, true},
		{"eve", "list", "pods", scenarios.Allow, false},
		{"eve", "list", "pods", scenarios.NoOpinion, false},
		{"eve", "impersonate", "users", scenarios.Allow, true},
		{"eve", "impersonate", "users", scenarios.NoOpinion, false},
		{"eve", "impersonate:user-info", "users", scenarios.Allow, true},
	} {
		spec := authorizationv1.SubjectAccessReviewSpec{
			User:               c.user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: c.verb, Resource: c.resource},
		}
		if got := contradictsGrants(DecidedReview{Spec: spec, Decision: c.decision}, granted); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestControlRuns checks that a failure is the API server's if the control run fails in the same fields, or if both
// runs fail only because of second events.
func TestControlRuns(t *testing.T) {
	result := func(fields ...string) (r Result) {
		for i, f := range fields {
			r.Differences = append(r.Differences, Difference{Step: i, Field: f, Want: "w", Got: "g"})
		}
		return r
	}
	for _, c := range []struct {
		r, control           Result
		eventsOnly, areAlike bool
	}{
		{result("code"), result("code"), false, true},
		{result("code"), result("message"), false, false},
		{result("code"), result("code", "message"), false, false},
		{result(eventsField), result(eventsField), true, true},
		{result(eventsField), result(eventsField, eventsField), true, false},
		{result(eventsField), result("code"), false, false},
		{result("code", eventsField), result("code", eventsField), false, true},
	} {
		if got := differInEventsOnly(c.r, c.control); got != c.eventsOnly {
			t.Errorf("%v, %v: in events only: %v", c.r.Differences, c.control.Differences, got)
		}
		if got := differAlike(c.r, c.control); got != c.areAlike {
			t.Errorf("%v, %v: alike: %v", c.r.Differences, c.control.Differences, got)
		}
	}
}

// TestObjectsOfEvents checks that an event may not have bodies that its level does not ask for.
func TestObjectsOfEvents(t *testing.T) {
	object := &runtime.Unknown{Raw: []byte(`{}`)}
	for _, c := range []struct {
		level                       string
		hasBody, hasSent, hasAnswer bool
		wantDifference              bool
	}{
		{scenarios.AuditMetadata, true, false, false, false},
		{scenarios.AuditMetadata, true, true, false, true},
		{scenarios.AuditMetadata, true, false, true, true},
		{scenarios.AuditRequest, true, true, false, false},
		{scenarios.AuditRequest, false, true, false, true},
		{scenarios.AuditRequest, false, false, false, false},
		{scenarios.AuditRequest, true, true, true, true},
		{scenarios.AuditResponse, true, true, true, false},
		{scenarios.AuditResponse, false, true, true, true},
		{scenarios.AuditResponse, false, false, true, false},
	} {
		v := &stepJudge{judge: &judge{}, o: &Observation{}}
		ev := &auditv1.Event{}
		if c.hasBody {
			v.o.Request.Body = json.RawMessage(`{}`)
		}
		if c.hasSent {
			ev.RequestObject = object
		}
		if c.hasAnswer {
			ev.ResponseObject = object
		}
		v.checkObjects("audit", ev, c.level)
		if got := len(v.result.Differences) > 0; got != c.wantDifference {
			t.Errorf("%+v: %v", c, v.result.Differences)
		}
	}
}

// TestPossibleAnswers checks that the recorder has no opinion, unless another authorizer has the grants, and that the
// scripted webhook answers by its rules where only they decide.
func TestPossibleAnswers(t *testing.T) {
	about := func(user string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{
			User:               user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"},
		}
	}
	rule := func(user string, answer scenarios.PolicyAnswer) scenarios.PolicyRule {
		return scenarios.PolicyRule{
			Answer: answer,
			For: scenarios.Grant{
				Subject:   scenarios.Subject{User: user},
				Verbs:     []string{"list"},
				APIGroups: []string{""},
				Resources: []string{"pods"},
			},
		}
	}
	rules := []scenarios.PolicyRule{
		rule("bob", scenarios.AnswerAllow),
		rule("eve", scenarios.AnswerBoth),
		rule("fail", scenarios.AnswerError),
	}
	for _, c := range []struct {
		point, user  string
		decision     scenarios.Decision
		chain        string
		isAuthorizer bool
		want         bool
	}{
		{Front, "bob", "", "webhook-first", false, true},
		{Back, "bob", scenarios.NoOpinion, "webhook-first", false, true},
		{Front, "bob", scenarios.Allow, "webhook-first", false, false},
		{Front, "bob", scenarios.Allow, "webhook-first", true, true},
		{Policy, "bob", scenarios.Allow, "webhook-first", false, true},
		{Policy, "bob", scenarios.Deny, "webhook-first", false, false},
		{Policy, "bob", scenarios.Deny, "webhook-cel", false, true}, // its match conditions may have excluded the review
		{Policy, "eve", scenarios.Deny, "webhook-last", false, true},
		{Policy, "eve", scenarios.Allow, "webhook-last", false, false},
		{Policy, "alice", scenarios.NoOpinion, "webhook-first", false, true}, // no rule is about her
		{Policy, "alice", scenarios.Allow, "webhook-first", false, false},
		{Policy, "fail", scenarios.Deny, "webhook-first", false, true}, // by the failure policy
		{Policy, "fail", scenarios.NoOpinion, "webhook-first", false, true},
	} {
		s := &scenarios.Scenario{Policy: rules, Requires: scenarios.Requires{Chain: c.chain}, Steps: []scenarios.Step{{}}}
		v := &stepJudge{judge: &judge{s: s, e: &Evidence{Authorizer: c.isAuthorizer}}}
		if got := v.isPossibleAnswer(Review{Point: c.point, Decision: c.decision, Spec: about(c.user)}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestAboutRequest checks that the webhook's reason is taken from the review that asks for the request.
func TestAboutRequest(t *testing.T) {
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "pods", Subresource: "log", Namespace: "shop", Name: "web"}
	same := authorizationv1.ResourceAttributes{
		Verb:        "get",
		Resource:    "pods",
		Subresource: "log",
		Namespace:   "shop",
		Name:        "web",
		Version:     "v1",
	}
	if !isAboutRequest(&same, info) {
		t.Error("not the same")
	}
	for field, change := range map[string]func(*authorizationv1.ResourceAttributes){
		"verb":        func(a *authorizationv1.ResourceAttributes) { a.Verb = "list" },
		"resource":    func(a *authorizationv1.ResourceAttributes) { a.Resource = "nodes" },
		"subresource": func(a *authorizationv1.ResourceAttributes) { a.Subresource = "" },
		"namespace":   func(a *authorizationv1.ResourceAttributes) { a.Namespace = "" },
		"name":        func(a *authorizationv1.ResourceAttributes) { a.Name = "db" },
	} {
		other := same
		change(&other)
		if isAboutRequest(&other, info) {
			t.Errorf("another %s is taken for the same", field)
		}
	}
	if isAboutRequest(nil, info) || isAboutRequest(&same, &request.RequestInfo{Verb: "get"}) {
		t.Error("a path is taken for a resource")
	}
}

// TestStaleTokens checks that an event has to say how stale a token is if the scenario made it stale, and nothing about
// any other token.
func TestStaleTokens(t *testing.T) {
	const text = "subject: system:serviceaccount:shop:cart, seconds after warning threshold: "
	for _, c := range []struct {
		warnAfter, got string
		want           int // the number of differences
	}{
		{"", "", 0},
		{"", text + "3", 1},
		{"10m", text + "3", 1},
		{"-2m", "", 1},
		{"-2m", text + "119", 1},
		{"-2m", text + "120", 0},
		{"-2m", text + "3719", 0},
		{"-2m", text + "3720", 1},
		{"-2m", "subject: eve, seconds after warning threshold: 120", 1},
	} {
		sa := &scenarios.ServiceAccount{Namespace: "shop", Name: "cart", Times: map[string]string{"warnafter": c.warnAfter}}
		v := &stepJudge{
			judge:     &judge{},
			requestor: scenarios.Requestor{ServiceAccount: sa},
			event:     &auditv1.Event{Annotations: map[string]string{}},
		}
		if c.got != "" {
			v.event.Annotations[staleAnnotation] = c.got
		}
		v.checkStaleToken()
		if len(v.result.Differences) != c.want {
			t.Errorf("%+v: %v", c, v.result.Differences)
		}
	}
}

// TestReviewsOfSubject checks that the reviews of a request are those about the user as whom it is carried out. If
// somebody impersonates a user of the same name, there are none, because nobody can say which reviews those are.
func TestReviewsOfSubject(t *testing.T) {
	for _, c := range []struct {
		requestor, impersonated string
		want                    int
	}{{"alice", "", 1}, {"alice", "bob", 2}, {"bob", "bob", 0}, {"bob", "", 2}, {"alice", "carol", 0}} {
		v := &stepJudge{judge: &judge{}, requestor: scenarios.Requestor{User: c.requestor}, request: &scenarios.Request{}}
		if c.impersonated != "" {
			v.request.Impersonate = &scenarios.Impersonate{User: c.impersonated}
		}
		for _, user := range []string{"alice", "bob", "bob"} {
			v.decided = append(v.decided, DecidedReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}})
		}
		if got := v.reviewsOfSubject(); len(got) != c.want {
			t.Errorf("%+v: %d reviews", c, len(got))
		}
	}
}

// TestCommonAudiences checks that a TokenReview which asks for no audience is about all audiences of the token.
func TestCommonAudiences(t *testing.T) {
	token := []string{"a", "b"}
	for _, c := range []struct {
		requested []string
		want      string
	}{{nil, "a; b"}, {[]string{"b", "c"}, "b"}, {[]string{"c"}, "none"}} {
		if got := scenarios.List(commonAudiences(token, c.requested)); got != c.want {
			t.Errorf("%v: %s", c.requested, got)
		}
	}
}
