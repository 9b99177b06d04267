package verdicts

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// These are the fields of differences that show what an API server did by itself, and two values that they have.
const (
	outcomeField    = "outcome"
	finalUserField  = "user in the final review"
	auditUserField  = "user in the audit event"
	noFinalReview   = "no final review"
	noImpersonation = "no impersonatedUser"
)

// IsCertain reports whether only the API server explains a failure, and no environment, load or chance does. That is so
// if a request ran as somebody other than was wanted, or was checked for somebody who has nothing to do with it; if it
// was allowed although it should not be; or if it was not answered as the authorizers decided, although they were asked
// everything that they should be. An API server that did so once is to blame, whatever it does when it is asked again.
func (r Result) IsCertain() bool {
	return r.Verdict == Failed && slices.ContainsFunc(r.Differences, func(d Difference) bool {
		if review, attribute, isReview := splitReviewField(d.Field); isReview {
			return slices.Contains(subjectFields, attribute) && r.isRightQuestion(d.Step, review)
		}
		switch d.Field {
		case aboutField:
			return true
		case finalUserField, auditUserField:
			return !slices.Contains([]string{noFinalReview, noImpersonation}, d.Got)
		case outcomeField:
			return d.Got == string(scenarios.Allowed) || r.wereReviewsRight(d.Step)
		}
		return false
	})
}

// subjectFields are the attributes of a review that say whose permission it asks for.
var subjectFields = []string{"user", "requestor"}

// splitReviewField splits a field such as reviews[1].name.
func splitReviewField(field string) (review, attribute string, isReview bool) {
	review, attribute, isReview = strings.Cut(field, "].")
	return review, attribute, isReview && strings.HasPrefix(review, "reviews[")
}

// isRightQuestion reports whether a review asks for the right permission, apart from whose permission it is. If it does
// not, it may be another review that took the place of a missing one.
func (r Result) isRightQuestion(step int, review string) bool {
	return !slices.ContainsFunc(r.Differences, func(d Difference) bool {
		other, attribute, isReview := splitReviewField(d.Field)
		isSameReview := isReview && other == review && d.Step == step
		return isSameReview && !slices.Contains([]string{"user", "requestor", "extra", "decision"}, attribute)
	})
}

// wereReviewsRight reports whether the reviews of a step were seen, and were as expected.
func (r Result) wereReviewsRight(step int) bool {
	differs := slices.ContainsFunc(r.Differences, func(d Difference) bool {
		return d.Step == step && strings.HasPrefix(d.Field, "reviews")
	})
	return !differs && !slices.Contains(r.NotJudged, "reviews")
}
