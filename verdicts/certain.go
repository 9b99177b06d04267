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

// IsCertain reports whether a failure shows what no environment, no load and no chance explains: a request ran as somebody
// else than was wanted, or was checked for somebody who has no part in it, it was allowed though it should not be, or it was not answered as the authorizers decided, who were
// asked all that they should be. An API server that did so once is to blame, whatever it does when it is asked again.
func (r Result) IsCertain() bool {
	return r.Verdict == Failed && slices.ContainsFunc(r.Differences, func(d Difference) bool {
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

// wereReviewsRight reports whether the reviews of a step were seen, and as expected.
func (r Result) wereReviewsRight(step int) bool {
	differs := slices.ContainsFunc(r.Differences, func(d Difference) bool {
		return d.Step == step && strings.HasPrefix(d.Field, "reviews")
	})
	return !differs && !slices.Contains(r.NotJudged, "reviews")
}
