package verdicts

import (
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/authzconf/authzconf/scenarios"
)

// The two points of the authorizer chain at which reviews are recorded.
const (
	Front = "front"
	Back  = "back"
	// Policy is the scripted webhook between them, in chains that have one.
	Policy = "policy"
)

// Decided is one access review with the decision of the authorizers that stand between the recorder's two points.
type Decided struct {
	Spec     authorizationv1.SubjectAccessReviewSpec `json:"spec"`
	Decision scenarios.Decision                      `json:"decision"`
	// At is when it arrived at the front.
	At time.Time `json:"at"`
}

// Fold turns the reviews of one request, as they arrived at both points, into decisions: what reached the back was
// NoOpinion to everybody before it; what did not was decided, by Deny if the scripted webhook said so, for no
// other authorizer ever does, else by Allow. A review behind the front that is not the one last seen there belongs
// to nothing: it is returned in stray, and means that reviews were lost or mixed up.
func Fold(reviews []Review) (decided []Decided, stray []Review) {
	open := false
	for _, r := range reviews {
		switch {
		case r.Point == Front:
			decided = append(decided, Decided{Spec: r.Spec, Decision: scenarios.Allow, At: r.At})
			open = true
		case open && r.Point == Policy && same(decided, r):
			if r.Decision == scenarios.Deny {
				decided[len(decided)-1].Decision = scenarios.Deny
			}
		case open && r.Point == Back && same(decided, r):
			decided[len(decided)-1].Decision = scenarios.NoOpinion
			open = false
		default:
			stray = append(stray, r)
		}
	}
	return decided, stray
}

// same says whether a review is the one last seen at the front.
func same(decided []Decided, r Review) bool {
	return equality.Semantic.DeepEqual(decided[len(decided)-1].Spec, r.Spec)
}
