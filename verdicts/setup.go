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

// refused tells whether the API server did what it never does to a member of system:masters who asks for a resource that
// every API server has: it refused, or its handler panicked, after which net/http resets the stream. What admission or
// validation refuses may be the scenario's fault.
func (p Problem) refused() bool {
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

// broken is the verdict on an API server on which the scenario could not be set up.
func (j *judge) broken(d Difference) Result {
	j.result.Judged++
	j.result.Differences = append(j.result.Differences, d)
	return j.conclude()
}

// unheeded judges that reviews do not follow roles. The API server contradicts itself if the roles and bindings that it
// shows say otherwise than its reviews, it had time, it answered, and no authorizer before RBAC denied. None does on targets of our
// own, where webhooks have no opinion of what the harness asks, unless one could not be reached, which the answer tells as an
// error. Of an existing cluster nobody here knows whether it has an RBAC authorizer at all.
func (j *judge) unheeded(u *Unheeded) Result {
	said := fmt.Sprintf("allowed=%v after %d reviews in %d ms: %s", u.Answer.Allowed, u.Asked, u.Millis, describe(u.Review))
	switch {
	case j.e.Capabilities.Foreign() || u.Answer.Allowed == u.Want || u.Answer.Denied && (u.Answer.EvaluationError != "" || j.e.Authorizer) || u.Asked < heedAsked || u.Millis < heedMillis:
		return j.invalid(BlameEnvironment, "whether a grant is in force could not be seen: "+said)
	case scenarios.Covered(scenarios.RulesFromManifests(u.Stored), u.Review) != u.Want:
		return j.invalid(BlameEnvironment, "the roles and bindings that the API server shows are not those that it was given: "+said)
	}
	return j.broken(Difference{Step: u.Step, Field: grantField, Want: fmt.Sprintf("allowed=%v, as its roles and bindings say", u.Want), Got: said})
}
