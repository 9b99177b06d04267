package target

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// behindPoint is a point of the recorder just behind a webhook with match conditions. A condition that cannot be
// evaluated denies without any webhook being called: only that nothing arrives here shows it.
const behindPoint recorder.Point = "behind"

// noOpinion is the script of behindPoint.
func noOpinion(authorizationv1.SubjectAccessReviewSpec) recorder.Answer { return recorder.Answer{} }

// conditional says whether an authorizer may deny by its match conditions.
func conditional(a apiserverv1.AuthorizerConfiguration) bool {
	return a.Webhook != nil && len(a.Webhook.MatchConditions) > 0 && a.Webhook.FailurePolicy == apiserverv1.FailurePolicyDeny
}

// conditionErrors replaces what arrived behind the conditional webhook by what it tells: a review of which neither
// the webhook nor the point behind it heard was denied in the webhook's place.
func (m middle) conditionErrors(seen []verdicts.Review) []verdicts.Review {
	if !slices.ContainsFunc(m.Authorizers, conditional) {
		return seen
	}
	out := make([]verdicts.Review, 0, len(seen))
	for i, r := range seen {
		if r.Point == string(behindPoint) {
			continue
		}
		out = append(out, r)
		if r.Point == verdicts.Front && (i+1 == len(seen) || seen[i+1].Point == verdicts.Front) {
			r.Point, r.Decision = verdicts.Policy, scenarios.Deny
			out = append(out, r)
		}
	}
	return out
}
