package deputy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// answer is the result of one way of asking.
type answer string

const (
	allowed   answer = "allowed"
	forbidden answer = "forbidden"
	// unreachable means that the proxy may not impersonate this person.
	unreachable answer = "not for the proxy"
)

const wantAgreement = "the review, the rules, the request and the grants agree"

// judge demands that what a person is shown before a request agrees with what becomes of the request. Where the grants are
// ours, both have to follow from them.
func (e *preflightEvidence) judge(out *judgement, g *group) error {
	rules := g.fixture.questionsByRules(g.questions)
	if len(e.Questions) != len(g.questions) || len(e.Rules) != len(rules) {
		return fmt.Errorf(
			"there is evidence of %d questions and %d rules reviews, the command line asks for %d and %d",
			len(e.Questions),
			len(e.Rules),
			len(g.questions),
			len(rules),
		)
	}
	for i, q := range g.questions {
		out.checks++
		got, err := e.answersTo(out, g, i, q)
		if err != nil {
			out.fail(q.String(), wantAgreement, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		out.outcomes[string(got.request)]++
		if g.isForeign() { // grants and authorizers are not known there
			if got.review != got.request {
				out.fail(q.String(), wantAgreement, "%s", got.reviewDiffers())
			}
			continue
		}
		for _, why := range got.compare(q.who.outOfReach, g.fixture.isGranted(q)) {
			out.fail(q.String(), wantAgreement, "%s", why)
		}
	}
	return e.judgeVisits(out, g)
}

// answers are what a person was told about a question in three ways.
type answers struct {
	review, request, rules answer
	status                 authorizationv1.SubjectAccessReviewStatus
}

// answersTo reads the answers to the i-th question.
func (e *preflightEvidence) answersTo(out *judgement, g *group, i int, q question) (got answers, err error) {
	var review, request, rules error
	got.review, got.status, review = reviewAnswer(e.Questions[i].Review)
	got.request, request = g.requestAnswer(out, q, e.Questions[i].Request, requestMarker(e.Run, i))
	got.rules, rules = rulesAnswer(q, e.Rules[g.fixture.rulesKey(q)])
	return got, errors.Join(review, request, rules)
}

// reviewDiffers says how the review and the request differ.
func (a answers) reviewDiffers() string {
	return fmt.Sprintf("the pre-flight says %q, the request is %q", a.review, a.request)
}

// compare returns which answers contradict one another or the grants.
func (a answers) compare(outOfReach, isGranted bool) (wrong []string) {
	want := forbidden
	switch {
	case outOfReach:
		want = unreachable
	case isGranted:
		want = allowed
	}
	if a.review != a.request {
		wrong = append(wrong, a.reviewDiffers())
	}
	if a.rules != a.request {
		wrong = append(wrong, fmt.Sprintf("by the rules review it is %q, the request is %q", a.rules, a.request))
	}
	if a.request != want {
		wrong = append(wrong, fmt.Sprintf("the request is %q, by the grants %q", a.request, want))
	}
	if a.review == allowed && !strings.HasPrefix(a.status.Reason, "RBAC: allowed by ") {
		wrong = append(wrong, fmt.Sprintf("the pre-flight says yes with the reason %q", a.status.Reason))
	}
	if a.review == forbidden && hasReason(a.status) {
		wrong = append(wrong,
			fmt.Sprintf(
				"the pre-flight says no with reason %q, denied=%v, error %q",
				a.status.Reason,
				a.status.Denied,
				a.status.EvaluationError,
			),
		)
	}
	return wrong
}

// hasReason reports whether a review says more than no. RBAC never does.
func hasReason(s authorizationv1.SubjectAccessReviewStatus) bool {
	return s.Reason != "" || s.Denied || s.EvaluationError != ""
}

// reviewAnswer returns what a self-subject access review says.
func reviewAnswer(o *verdicts.Observation) (answer, authorizationv1.SubjectAccessReviewStatus, error) {
	var got authorizationv1.SelfSubjectAccessReview
	a, err := decodeReview(o, &got)
	if a == allowed && !got.Status.Allowed {
		a = forbidden
	}
	return a, got.Status, err
}

// decodeReview decodes the answer to a review. The answer is unreachable if the proxy may not ask on behalf of this
// person.
func decodeReview(o *verdicts.Observation, review any) (answer, error) {
	if isImpersonationRefused(o) {
		return unreachable, nil
	}
	if o.Response.Code != http.StatusCreated {
		return "", fmt.Errorf("the review was answered %d: %.200s", o.Response.Code, cmp.Or(o.Response.Broken, o.Response.Body))
	}
	return allowed, json.Unmarshal([]byte(o.Response.Body), review)
}

// isImpersonationRefused reports whether the API server refused the impersonation itself.
func isImpersonationRefused(o *verdicts.Observation) bool {
	status := verdicts.StatusOf(o.Response)
	return o.Response.Code == http.StatusForbidden && status != nil && strings.Contains(status.Message, "cannot impersonate")
}

// requestAnswer returns what became of a request according to its audit event. The answer's text is not enough, because
// admission refuses in words like those of authorization.
func (g *group) requestAnswer(out *judgement, q question, o *verdicts.Observation, marker string) (answer, error) {
	event := decodeEvent(o.Audit)
	switch {
	case event == nil:
		return "", fmt.Errorf("the request was answered %d and has no audit event: it did not arrive", o.Response.Code)
	case string(event.AuditID) == o.Response.AuditID:
		out.foundBy[foundByID]++
	case event.UserAgent == marker:
		out.foundBy[foundByAgent]++
	default:
		return "", fmt.Errorf("the event %s is not that of this request", event.AuditID)
	}
	decision := decisionOf(event)
	switch {
	case event.ImpersonatedUser == nil && decision == "":
		return unreachable, nil
	case arrivingUser(event).Username != q.who.Name:
		return "", fmt.Errorf("it was made as %q", arrivingUser(event).Username)
	case !g.isImpersonatedAsGranted(event):
		return "", fmt.Errorf("it was impersonated by the constraint %q", scenarios.ConstraintOf(event))
	case decision == "allow":
		return allowed, nil
	case decision == "forbid":
		return forbidden, nil
	}
	return "", fmt.Errorf("its audit event has the decision %q", decision)
}

// isImpersonatedAsGranted reports whether a request was impersonated in the way that is granted, legacy or constrained.
func (g *group) isImpersonatedAsGranted(event *auditv1.Event) bool {
	if event.ImpersonatedUser == nil || g.isForeign() {
		return true
	}
	isConstrained := scenarios.ConstraintOf(event) != ""
	return isConstrained == (g.name == constrained)
}

// rulesAnswer evaluates the rules of a SelfSubjectRulesReview as a client would.
func rulesAnswer(q question, o *verdicts.Observation) (answer, error) {
	var review authorizationv1.SelfSubjectRulesReview
	if a, err := decodeReview(o, &review); err != nil || a != allowed {
		return a, err
	}
	isListed := slices.ContainsFunc(review.Status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
		g := scenarios.Grant{
			Subject:   scenarios.Subject{User: q.who.Name},
			Verbs:     rule.Verbs,
			APIGroups: rule.APIGroups,
			Resources: rule.Resources,
			Names:     rule.ResourceNames,
		}
		return g.Covers(authorizationv1.SubjectAccessReviewSpec{User: q.who.Name, ResourceAttributes: q.attributes()})
	})
	if isListed {
		return allowed, nil
	}
	return forbidden, nil
}
