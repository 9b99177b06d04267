package dashboard

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/internal/seq"
)

// review is an access review that arrived at the API server.
type review struct {
	kind   ReviewKind
	person string
	// answeredAt is when the API server answered the review.
	answeredAt time.Time
	// attributes are the attributes of an access review. For a rules review they have only the namespace.
	attributes Attributes
	// isOpaque means that the event does not say what the review asks.
	isOpaque bool
	// isDenied means that the answer was no. It is false if the event has no answer.
	isDenied bool
}

// readReview reads the event of an access review. isReview is false for any other event.
func readReview(event *auditv1.Event) (r review, isReview bool) {
	ref := event.ObjectRef
	if ref == nil || ref.APIGroup != authorizationv1.GroupName || event.Verb != "create" {
		return r, false
	}
	r = review{person: arrivingUser(event).Username, answeredAt: event.StageTimestamp.Time}
	switch ref.Resource {
	case "selfsubjectaccessreviews":
		r.kind = AccessReview
	case "selfsubjectrulesreviews":
		r.kind = RulesReview
	default:
		return r, false
	}
	r.readObjects(event)
	return r, true
}

// readObjects reads what a review asks and what it was answered, if the event has that.
func (r *review) readObjects(event *auditv1.Event) {
	if r.kind == RulesReview {
		var question authorizationv1.SelfSubjectRulesReview
		r.isOpaque = event.RequestObject == nil || json.Unmarshal(event.RequestObject.Raw, &question) != nil
		r.attributes.Namespace = question.Spec.Namespace
		return
	}
	var question, answer authorizationv1.SelfSubjectAccessReview
	r.isOpaque = event.RequestObject == nil || json.Unmarshal(event.RequestObject.Raw, &question) != nil
	if a := question.Spec.ResourceAttributes; a != nil {
		r.attributes = Attributes{Verb: a.Verb, APIGroup: a.Group, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name}
		if a.Subresource != "" {
			r.attributes.Resource += "/" + a.Subresource
		}
	}
	if event.ResponseObject != nil && json.Unmarshal(event.ResponseObject.Raw, &answer) == nil {
		r.isDenied = !answer.Status.Allowed
	}
}

// answers reports whether a review is about a request. A yes without a name or namespace covers all names or
// namespaces.
func (r review) answers(a Attributes, kind ReviewKind) bool {
	switch {
	case kind != EitherReview && r.kind != kind:
		return false
	case r.kind == RulesReview:
		return r.attributes.Namespace == a.Namespace && r.attributes.Cluster == a.Cluster
	}
	return r.attributes.covers(a)
}

// findReview returns the last review by a person about a request that was answered before a given time, or the reason
// why there is none. Both are empty if the log does not show what the reviews ask.
func (j *Judge) findReview(out *Findings, person string, a Attributes, kind ReviewKind, before time.Time) (*review, string) {
	ofCluster := seq.Filter(j.reviews, func(got review) bool { return got.attributes.Cluster == a.Cluster })
	earlierReviews := seq.Filter(ofCluster, func(got review) bool { return !got.answeredAt.After(before) }) // by the clock of one cluster
	matching := seq.Filter(earlierReviews, func(got review) bool { return !got.isOpaque && got.answers(a, kind) })
	ofPerson := seq.Filter(matching, func(got review) bool { return got.person == person })
	switch {
	case len(ofPerson) > 0:
		return &ofPerson[len(ofPerson)-1], ""
	case len(matching) > 0:
		return nil, fmt.Sprintf("the review was made as %q", matching[0].person)
	case len(earlierReviews) > 0 && earlierReviews[len(earlierReviews)-1].isOpaque:
		out.Unknown = "the audit log has access reviews without what they ask: its policy has to log selfsubjectaccessreviews and selfsubjectrulesreviews at level Request"
		return nil, ""
	case j.isAskedElsewhere(a, kind):
		return nil, "there is none at that cluster: another one was asked"
	case len(earlierReviews) > 0:
		last := earlierReviews[len(earlierReviews)-1]
		return nil, fmt.Sprintf(
			"there is none about that: the last of %d (%s) asks about %q",
			len(earlierReviews),
			last.kind,
			last.attributes,
		)
	case len(ofCluster) > 0:
		return nil, "there is none before it: the first comes after"
	}
	return nil, "there is none"
}

// isAskedElsewhere reports whether another cluster was asked a review about the same.
func (j *Judge) isAskedElsewhere(a Attributes, kind ReviewKind) bool {
	return slices.ContainsFunc(j.reviews, func(got review) bool {
		same := a
		same.Cluster = got.attributes.Cluster
		return same != a && got.answers(same, kind)
	})
}

// checkReview demands that an access review, as the person, asks about a request before it arrives, and that the request
// is not sent after a no unless it is to be refused. before is when the request arrived, or until when it could have
// arrived. It returns what is wrong, or "".
func (j *Judge) checkReview(out *Findings, r Request, a Attributes, before time.Time) string {
	kind := r.ReviewOf(a)
	if kind == NoReview {
		return ""
	}
	got, why := j.findReview(out, r.As, a, kind, before)
	switch {
	case got == nil:
		return why
	case got.isDenied && !r.Refused:
		return "it said no, and the request was sent all the same"
	}
	if why := j.checkAge(*got, before); why != "" {
		return why
	}
	out.note(string(got.kind)+" reviews before what arrived", 1)
	return ""
}

// checkAge demands that the answer of a review is no older than the file's reviewsWithin. It returns what is wrong, or "".
func (j *Judge) checkAge(got review, before time.Time) string {
	age := before.Sub(got.answeredAt)
	if j.file.ReviewsWithin > 0 && age > j.file.ReviewsWithin {
		return fmt.Sprintf("it was answered %s before, and may be %s old", age.Round(time.Millisecond), j.file.ReviewsWithin)
	}
	return ""
}
