package verdicts

import (
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Fields of differences that show what an API server did by itself.
const (
	outcomeField    = "outcome"
	finalUserField  = "user in the final review"
	auditUserField  = "user in the audit event"
	noFinalReview   = "no final review"
	noImpersonation = "no impersonatedUser"
)

// IsCertain reports whether a failure shows what no environment, no load and no chance explains. A request ran as somebody
// other than was wanted, or was checked for somebody who has no part in it; or it was allowed though it should not be; or it
// was not answered as the authorizers decided, although they were asked all that they should be. An API server that did so once
// is to blame, whatever it does when it is asked again.
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

// isRightQuestion reports whether a review asks what it should, whomever it is about: then it is not another review, which came
// in the place of one that is missing.
func (r Result) isRightQuestion(step int, review string) bool {
	return !slices.ContainsFunc(r.Differences, func(d Difference) bool {
		of, attribute, isReview := splitReviewField(d.Field)
		isOfIt := isReview && of == review && d.Step == step
		return isOfIt && !slices.Contains([]string{"user", "requestor", "extra", "decision"}, attribute)
	})
}

// wereReviewsRight reports whether the reviews of a step were seen, and as expected.
func (r Result) wereReviewsRight(step int) bool {
	differs := slices.ContainsFunc(r.Differences, func(d Difference) bool {
		return d.Step == step && strings.HasPrefix(d.Field, "reviews")
	})
	return !differs && !slices.Contains(r.NotJudged, "reviews")
}
