package verdicts

import (
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// Unheeded is a grant, or its end, that an API server accepted and that its access reviews did not show.
type Unheeded struct {
	// Step is the index of the step that granted or revoked, 0 for what is granted before the first.
	Step int `json:"step"`
	// Review is what was asked, Want whether it should have been allowed, and Answer the last answer.
	Review authorizationv1.SubjectAccessReviewSpec   `json:"review"`
	Want   bool                                      `json:"want"`
	Answer authorizationv1.SubjectAccessReviewStatus `json:"answer"`
	// Asked is how many reviews were answered, Millis how long after the change the last was.
	Asked  int   `json:"asked"`
	Millis int64 `json:"millis"`
	// Stored are the roles and bindings of the grant that the API server shows afterwards.
	Stored []map[string]any `json:"stored"`
}

// What says that an API server had time to see a change, and was not too busy to answer.
const (
	heedMillis = 10_000
	heedAsked  = 20
)

// The fields of what an API server does wrong while a scenario is set up.
const (
	grantField = "grant"
	setupField = "setup"
)

// judgeProblem judges that something broke outside of the scenario's requests. The API server has failed if it refused what
// it owes an administrator; on a cluster that somebody else made, nobody here knows what it owes. All else is invalid.
func (j *judge) judgeProblem(p Problem) Result {
	if !j.e.Capabilities.Foreign() && p.isAPIServerFault() {
		return j.failSetup(Difference{Step: len(j.e.Steps), Field: setupField, Want: "what system:masters may do", Got: p.Text})
	}
	return j.makeInvalid(p.Blame, p.Text)
}

// isAPIServerFault reports whether the API server did what it never does to a member of system:masters who asks for a
// resource that every API server has: it refused, or its handler panicked, after which net/http resets the stream. What
// admission or validation refuses may be the scenario's fault.
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

// judgeUnheeded judges that reviews do not follow roles. The API server contradicts itself, and has failed, if the roles and
// bindings that it shows say otherwise than its reviews, and nothing else can have made the difference.
func (j *judge) judgeUnheeded(u *Unheeded) Result {
	said := fmt.Sprintf("allowed=%v after %d reviews in %d ms: %s", u.Answer.Allowed, u.Asked, u.Millis, describe(u.Review))
	switch {
	case u.Answer.Allowed == u.Want || !u.hadTime() || j.mayFollowOthers(u):
		return j.makeInvalid(BlameEnvironment, "whether a grant is in force could not be seen: "+said)
	case scenarios.Covered(scenarios.RulesFromManifests(u.Stored), u.Review) != u.Want:
		return j.makeInvalid(BlameEnvironment, "the roles and bindings that the API server shows are not those that it was given: "+said)
	}
	return j.failSetup(Difference{Step: u.Step, Field: grantField, Want: fmt.Sprintf("allowed=%v, as its roles and bindings say", u.Want), Got: said})
}

// hadTime reports whether the API server had time to see the change, and was not too busy to answer.
func (u *Unheeded) hadTime() bool { return u.Asked >= heedAsked && u.Millis >= heedMillis }

// mayFollowOthers reports whether another authorizer than RBAC may have given the last answer. On an existing cluster nobody
// here knows whether there is an RBAC authorizer at all. On targets of our own none before RBAC denies, for webhooks have
// no opinion of what the harness asks, unless one could not be reached, which the answer says as an error, or another
// authorizer has the grants.
func (j *judge) mayFollowOthers(u *Unheeded) bool {
	if j.e.Capabilities.Foreign() {
		return true
	}
	isOther := u.Answer.EvaluationError != "" || j.e.Authorizer
	return u.Answer.Denied && isOther
}
