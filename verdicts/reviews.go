package verdicts

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// checkReviews demands exactly the access reviews that the scenario states, in this order. Where it states none, the
// reviews that were seen have to be about the request.
//
// Source: KEP-5284, Subject Access Review Details; k8s.io/apiserver/pkg/endpoints/filters/impersonation/mode.go.
func (v *stepJudge) checkReviews() {
	want := v.expect.Reviews
	if want == nil {
		v.checkSubjectMatter()
		return
	}
	if !v.hasCapability(scenarios.Reviews) {
		v.addNotJudged("reviews")
		return
	}
	if countReviews(want) != len(v.decided) {
		v.compare("reviews", v.renderExpectedReviews(want), v.renderDecidedReviews(v.decided))
		return
	}
	at := 0
	for _, w := range want {
		if len(w.Unordered) == 0 {
			v.compareReview(at, w, v.decided[at])
			at++
			continue
		}
		v.compareUnordered(at, w.Unordered, v.decided[at:at+len(w.Unordered)])
		at += len(w.Unordered)
	}
}

// checkSubjectMatter demands that one of the reviews about the user as whom the request is carried out asks for what the
// request does. It applies where the scenario states no reviews. A request that impersonates nobody must have such a
// review, about the requestor with all attributes, unless authorizers need not be asked.
//
// Source: GetAuthorizerAttributes in k8s.io/apiserver/pkg/endpoints/filters/authorization.go.
func (v *stepJudge) checkSubjectMatter() {
	address, err := url.Parse(v.o.Request.URL)
	if err != nil || v.expect.OneOf != nil {
		return
	}
	isDirect := v.impersonatedName() == ""
	reviews := v.reviewsOfSubject()
	mayBeNone := !isDirect || !v.mustAskAuthorizers(address)
	if len(reviews) == 0 && mayBeNone {
		return
	}
	info, err := scenarios.RequestInfo(v.o.Request.Method, address)
	if err != nil {
		return
	}
	render := func(r scenarios.Review, u scenarios.User) string {
		text := r.Verb + " " + r.Version + " " + RenderAbout(r)
		return textIf(isDirect, text+" by "+u.Render(), text)
	}
	want := render(reviewOfRequest(info), v.authenticatedUser())
	got := seq.Map(reviews, func(d DecidedReview) string { return render(Describe(d), reviewUser(d.Spec)) })
	v.compare("reviews (what they are about)", want, textIf(slices.Contains(got, want), want, scenarios.List(got)))
}

// reviewsOfSubject returns the reviews about the user as whom the request is carried out. It returns none if somebody
// impersonates a user of the same name, because then nobody can say which of the two a review is about.
func (v *stepJudge) reviewsOfSubject() []DecidedReview {
	name, requestor := v.impersonatedName(), v.requestor.Username()
	if name != "" && name == requestor {
		return nil
	}
	subject := cmp.Or(name, requestor)
	return seq.Filter(v.decided, func(d DecidedReview) bool { return d.Spec.User == subject })
}

// reviewOfRequest returns the access review that asks for the permission to make a request.
func reviewOfRequest(info *request.RequestInfo) scenarios.Review {
	if !info.IsResourceRequest {
		return scenarios.Review{Verb: info.Verb, Path: info.Path}
	}
	return scenarios.Review{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name,
	}
}

// mustAskAuthorizers reports whether the authorizers have to be asked about a request that impersonates nobody, and the
// evidence shows it. They need not be if the request got no further than authentication, is a member's of
// system:masters, or is for a path that is open to everybody.
func (v *stepJudge) mustAskAuthorizers(address *url.URL) bool {
	isAuthorized := v.event != nil && v.event.Annotations[decisionAnnotation] != ""
	isOpen := slices.Contains([]string{"/healthz", "/readyz", "/livez"}, address.Path)
	isPrivileged := slices.Contains(v.requestor.Groups, user.SystemPrivilegedGroup)
	return v.hasCapability(scenarios.Reviews) && isAuthorized && !isOpen && !isPrivileged
}

// countReviews returns how many reviews are expected, including those that may come in any order.
func countReviews(want []scenarios.Review) int {
	return seq.Sum(want, func(w scenarios.Review) int { return max(1, len(w.Unordered)) })
}

// compareUnordered pairs each expected review with an equal one. It compares what remains on both sides as a whole, to
// show both.
func (v *stepJudge) compareUnordered(at int, want []scenarios.Review, got []DecidedReview) {
	rest := slices.Clone(got)
	var missing []scenarios.Review
	for _, w := range want {
		i := slices.IndexFunc(rest, func(d DecidedReview) bool { return len(v.compareAttributes(w, d)) == 0 })
		if i < 0 {
			missing = append(missing, w)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	wantText, gotText := v.renderExpectedReviews(missing), v.renderDecidedReviews(rest)
	if len(missing) > 0 && wantText == gotText { // The texts leave out some attributes that differ, such as the requestor's groups.
		d := v.compareAttributes(missing[0], rest[0])[0]
		wantText, gotText = wantText+" with "+d.Field+" "+d.Want, gotText+" with "+d.Field+" "+d.Got
	}
	v.compare(fmt.Sprintf("reviews[%d..%d]", at, at+len(want)-1), wantText, gotText)
}

// compareReview compares one review with the one that is expected in its place.
func (v *stepJudge) compareReview(i int, want scenarios.Review, got DecidedReview) {
	diffs := v.compareAttributes(want, got)
	v.result.Judged++
	for _, d := range diffs {
		d.Step, d.Field = v.index, fmt.Sprintf("reviews[%d].%s", i, d.Field)
		v.result.Differences = append(v.result.Differences, d)
	}
}

// compareAttributes returns the differences between an expected and an observed review. Field is the name of the
// attribute.
func (v *stepJudge) compareAttributes(want scenarios.Review, got DecidedReview) (diffs []Difference) {
	check := func(field, w, g string) {
		if w != g {
			diffs = append(diffs, Difference{Field: field, Want: quote(w), Got: quote(g)})
		}
	}
	observed := Describe(got)
	check("user", v.subjectName(want.By), got.Spec.User)
	check("verb", want.Verb, observed.Verb)
	check("group", want.Group, observed.Group)
	check("version", want.Version, observed.Version)
	check("resource", want.Resource, observed.Resource)
	check("subresource", want.Subresource, observed.Subresource)
	check("namespace", want.Namespace, observed.Namespace)
	check("name", want.Name, observed.Name)
	check("path", want.Path, observed.Path)
	check("fieldSelector", want.FieldSelector, observed.FieldSelector)
	check("labelSelector", want.LabelSelector, observed.LabelSelector)
	check("decision", string(want.Decision), string(got.Decision))
	if want.Extra != nil {
		check("extra", scenarios.RenderExtra(want.Extra), scenarios.RenderExtra(reviewUser(got.Spec).Extra))
	}
	if want.By != scenarios.ByImpersonated {
		check("requestor", v.requestorInReview(want.Verb).Render(), reviewUser(got.Spec).Render())
	}
	return diffs
}

// subjectName returns the name of the user whose permission a review must ask for.
func (v *stepJudge) subjectName(by scenarios.By) string {
	if by == scenarios.ByImpersonated {
		return v.impersonatedName()
	}
	return v.requestor.Username()
}

// Describe returns an observed review in the terms of an expectation.
func Describe(d DecidedReview) scenarios.Review { return scenarios.ReviewOf(d.Spec, d.Decision) }

// RenderReview returns a review on one line, for people.
func RenderReview(r scenarios.Review) string {
	who := ""
	if r.By == scenarios.ByImpersonated {
		who = "(impersonated) "
	}
	return who + r.Verb + " " + RenderAbout(r) + " → " + string(r.Decision)
}

// RenderAbout returns what a review is about, for people.
func RenderAbout(r scenarios.Review) string {
	if r.Path != "" {
		return r.Path
	}
	what := scenarios.FullResource(r.Resource, r.Subresource)
	if r.Group != "" {
		what += "." + r.Group
	}
	if r.Name != "" {
		what += fmt.Sprintf(" %q", r.Name)
	}
	if r.Namespace != "" {
		what += " in " + r.Namespace
	}
	return what
}

// describeSpec returns an access review on one line, without its decision.
func describeSpec(spec authorizationv1.SubjectAccessReviewSpec) string {
	return fmt.Sprintf("%q %s", spec.User, strings.TrimSuffix(RenderReview(Describe(DecidedReview{Spec: spec})), " → "))
}

// renderExpectedReviews returns the expected reviews on one line. A review that is observed as expected is the same text
// in renderDecidedReviews.
func (v *stepJudge) renderExpectedReviews(want []scenarios.Review) string {
	return renderLines(want, func(w scenarios.Review) string {
		if len(w.Unordered) > 0 {
			return "in any order {" + v.renderExpectedReviews(w.Unordered) + "}"
		}
		w.By = v.findSubject(v.subjectName(w.By))
		return RenderReview(w)
	})
}

// renderDecidedReviews returns the observed reviews on one line.
func (v *stepJudge) renderDecidedReviews(got []DecidedReview) string {
	return renderLines(got, func(d DecidedReview) string {
		r := Describe(d)
		r.By = v.findSubject(d.Spec.User)
		return RenderReview(r)
	})
}

// findSubject returns whose permission a review about a user of this name asks for. If somebody impersonates a user of
// the same name, it is the requestor's, because nobody can say which of the two a review is about.
func (v *stepJudge) findSubject(name string) scenarios.By {
	if name == v.impersonatedName() && name != v.requestor.Username() {
		return scenarios.ByImpersonated
	}
	return scenarios.ByRequestor
}

// These are the points of the authorizer chain at which reviews are recorded. The recorder stands at the first two.
const (
	Front = "front"
	Back  = "back"
	// Policy is the scripted webhook between front and back, in chains that have one.
	Policy = "policy"
)

// DecidedReview is one access review with the decision of the authorizers between the recorder's two points.
type DecidedReview struct {
	Spec     authorizationv1.SubjectAccessReviewSpec `json:"spec"`
	Decision scenarios.Decision                      `json:"decision"`
	At       time.Time                               `json:"at"` // when it arrived at the front
}

// DeriveDecisions turns the reviews of one request, as they arrived at both points, into decisions. If a review reached
// the back, no authorizer before it had an opinion. Otherwise one of them decided: the decision is Deny if the scripted
// webhook denied, because no other authorizer ever does, and Allow if not. Reviews that arrived at a later point but
// not at the front are returned as stray.
func DeriveDecisions(reviews []Review) (decided []DecidedReview, stray []Review) {
	for _, r := range reviews {
		if r.Point == Front {
			decided = append(decided, DecidedReview{Spec: r.Spec, Decision: scenarios.Allow, At: r.At})
			continue
		}
		d := findUndecided(decided, r.Spec)
		switch {
		case d == nil:
			stray = append(stray, r)
		case r.Point == Back:
			d.Decision = scenarios.NoOpinion
		case r.Decision == scenarios.Deny:
			d.Decision = scenarios.Deny
		}
	}
	return decided, stray
}

// findUndecided returns the last review with this spec that has not reached the end of the chain yet, or nil if there
// is none. Reviews of requests that were sent at the same time may stand between them.
func findUndecided(decided []DecidedReview, spec authorizationv1.SubjectAccessReviewSpec) *DecidedReview {
	for i := range slices.Backward(decided) {
		d := &decided[i]
		if d.Decision != scenarios.NoOpinion && equality.Semantic.DeepEqual(d.Spec, spec) {
			return d
		}
	}
	return nil
}

// deriveDecisions returns the decisions of reviews, and demands that none is stray. One recorder serves both points, so
// it is the API server's fault if a review arrives only at a later point: it left out an authorizer, or asked two of
// them different things.
func (v *stepJudge) deriveDecisions(reviews []Review) []DecidedReview {
	decided, stray := DeriveDecisions(reviews)
	if len(stray) > 0 {
		v.compare(chainField, "none that has not passed its beginning", describeSpec(stray[0].Spec))
	}
	return decided
}
