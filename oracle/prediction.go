package oracle

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// Mode is a way of impersonating.
type Mode string

// The modes, in the order in which a server that remembers nothing tries them (allImpersonationModes).
const (
	AssociatedNode Mode = "associated-node"
	ArbitraryNode  Mode = "arbitrary-node"
	ServiceAccount Mode = "serviceaccount"
	UserInfo       Mode = "user-info"
	Legacy         Mode = "legacy"
)

// Modes are all modes, in order.
func Modes() []Mode { return []Mode{AssociatedNode, ArbitraryNode, ServiceAccount, UserInfo, Legacy} }

// Prediction is what a server is expected to do with a request.
type Prediction struct {
	// Outcome is always one.
	Outcome scenarios.Outcome
	// Code is 400, 403 or 500; 0 if what comes behind authorization decides it.
	Code int
	// Messages are the possible texts of the answer, more than one where it depends on the order of a Go map; none
	// where others write it.
	Messages []string
	// Requestor authenticated.
	Requestor scenarios.User
	// Wanted is the user that the headers ask for; nil if they say nothing.
	Wanted *scenarios.User
	// User is the resulting user; nil if nobody is impersonated.
	User *scenarios.User
	// Mode is the mode that succeeded; empty if none did or none was needed.
	Mode Mode
	// Segments are the access reviews, in order, the final one included.
	Segments []Segment
	// Audit is what the audit event says.
	Audit Audit
	// Counted says whether the server keeps impersonation metrics, and Attempts is the increase of
	// apiserver_impersonation_attempts_total.
	Counted  bool
	Attempts []scenarios.MetricDelta
	// Trace says mode by mode how it came to this.
	Trace []Attempt
}

// Audit is the part of an audit event that impersonation is seen in.
type Audit struct {
	// ImpersonatedUser says whether the event has one.
	ImpersonatedUser bool
	// Constraint is authenticationMetadata.impersonationConstraint.
	Constraint string
	// Decision is the annotation authorization.k8s.io/decision.
	Decision string
}

// Review is one question to the authorizers.
type Review struct {
	// By says whose permission is asked.
	By scenarios.By
	// Mode is the impersonation mode that asks; empty for an ordinary review.
	Mode Mode
	// Spec is the question.
	Spec authorizationv1.SubjectAccessReviewSpec
	// Answer is what the chain said, and Hidden that webhooks do not see the question: it was decided before them.
	Answer Answer
	Hidden bool
	// text is that of the error if the server does not go on.
	text string
}

// Allowed tells whether the answer lets the server go on. The filter of servers without the gate does not go on
// after an error.
func (r Review) Allowed() bool { return r.Answer.Decision == scenarios.Allow }

// Segment is a part of the sequence of reviews. A single run is in order. Of several, each in order within itself,
// any can be first, because a Go map is walked: if a run ends with a denial, no other follows it; so either all
// runs come, in any order, or some of those that are allowed and then one that is not.
type Segment struct {
	Runs [][]Review
}

// Attempt is what became of one mode.
type Attempt struct {
	Mode Mode
	// Remembered says that the mode was tried first because it was the last to succeed for this requestor.
	Remembered bool
	// NotApplicable says why the mode has nothing to say about the request; empty if it has.
	NotApplicable string
	// Cached says what was not asked because an earlier success is remembered.
	Cached string
	// Segments are the reviews of this mode.
	Segments []Segment
	// Refused says that the mode refuses what is wanted without asking anybody.
	Refused bool
	// Messages are the possible error texts; none if the mode allowed.
	Messages []string
	// Allowed says that the mode succeeded.
	Allowed bool
}
