package verdicts

import (
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// UnappliedGrant is a grant, or the end of one, that an API server accepted but that did not show in its access
// reviews.
type UnappliedGrant struct {
	// Step is the index of the step that granted or revoked. It is 0 for what is granted before the first step.
	Step int `json:"step"`
	// Review is the review that was asked, Want whether it should have been allowed, and Answer the last answer.
	Review authorizationv1.SubjectAccessReviewSpec   `json:"review"`
	Want   bool                                      `json:"want"`
	Answer authorizationv1.SubjectAccessReviewStatus `json:"answer"`
	// Reviews is how many reviews were answered, and Millis how long after the change the last of them was.
	Reviews int   `json:"asked"`
	Millis  int64 `json:"millis"`
	// Stored are the roles and bindings of the grant as the API server shows them afterwards.
	Stored []map[string]any `json:"stored"`
}

// An API server that has answered so many reviews in so long had time to see a change, and was not too busy to answer.
const (
	minMillis  = 10_000
	minReviews = 20
)

// These are the fields of differences that arise while a scenario is set up.
const (
	grantField = "grant"
	setupField = "setup"
)

// judgeProblem judges something that broke outside of the scenario's requests. The API server has failed if it refused
// what it must allow an administrator. A cluster that somebody else made may refuse more, so there, as in all other
// cases, the result is invalid.
func (j *judge) judgeProblem(p Problem) Result {
	if !j.e.Capabilities.Foreign() && p.isAPIServerFault() {
		return j.failSetup(Difference{Step: len(j.e.Steps), Field: setupField, Want: "what system:masters may do", Got: p.Text})
	}
	return j.makeInvalid(p.Blame, p.Text)
}

// isAPIServerFault reports whether the API server did what it must never do to a member of system:masters who asks for
// a resource that every API server has: it refused, or its handler panicked, after which net/http resets the stream.
// What admission or validation refuses may be the scenario's fault.
func (p Problem) isAPIServerFault() bool {
	answer := p.Answer
	if answer == nil {
		return p.Blame == BlameHarness && strings.Contains(p.Text, "INTERNAL_ERROR; received from peer")
	}
	switch answer.Code {
	case codeUnauthorized, codeMethodNotAllowed:
		return true
	case codeNotFound:
		return strings.Contains(answer.Message, "the server could not find the requested resource")
	case codeForbidden:
		return strings.Contains(answer.Message, ` is forbidden: User "`) && strings.Contains(answer.Message, " cannot ")
	}
	return false
}

// failSetup returns the verdict on an API server on which the scenario could not be set up.
func (j *judge) failSetup(d Difference) Result {
	j.result.Judged++
	j.result.Differences = append(j.result.Differences, d)
	return j.conclude()
}

// judgeUnappliedGrant judges a grant that access reviews do not show. The API server contradicts itself, and has
// failed, if its reviews differ from the roles and bindings that it shows, and if nothing else can be the cause.
func (j *judge) judgeUnappliedGrant(u *UnappliedGrant) Result {
	answer := fmt.Sprintf("allowed=%v after %d reviews in %d ms: %s", u.Answer.Allowed, u.Reviews, u.Millis, describeSpec(u.Review))
	isAsWanted := u.Answer.Allowed == u.Want
	isUnclear := !u.hadTime() || j.mayBeAnothersAnswer(u)
	switch {
	case isAsWanted || isUnclear:
		return j.makeInvalid(BlameEnvironment, "whether a grant is in force could not be seen: "+answer)
	case scenarios.Covered(scenarios.RulesFromManifests(u.Stored), u.Review) != u.Want:
		return j.makeInvalid(BlameEnvironment, "the roles and bindings that the API server shows are not those that it was given: "+answer)
	}
	return j.failSetup(
		Difference{Step: u.Step, Field: grantField, Want: fmt.Sprintf("allowed=%v, as its roles and bindings say", u.Want), Got: answer},
	)
}

// hadTime reports whether the API server had time to see the change, and was not too busy to answer.
func (u *UnappliedGrant) hadTime() bool { return u.Reviews >= minReviews && u.Millis >= minMillis }

// mayBeAnothersAnswer reports whether another authorizer than RBAC may have given the last answer. On an existing
// cluster nobody here knows whether there is an RBAC authorizer at all. On targets of our own no authorizer before RBAC
// denies, because webhooks have no opinion of what the harness asks. There are two exceptions: a webhook that could not
// be reached, which the answer reports as an error, and another authorizer that has the grants.
func (j *judge) mayBeAnothersAnswer(u *UnappliedGrant) bool {
	if j.e.Capabilities.Foreign() {
		return true
	}
	isOther := u.Answer.EvaluationError != "" || j.e.Authorizer
	return u.Answer.Denied && isOther
}
