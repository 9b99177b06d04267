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

// checkReviews demands the access reviews that the scenario states, all of them and in this order. Where it states none,
// those that there are have to be about the request.
//
// Source: KEP-5284, Subject Access Review Details; k8s.io/apiserver/pkg/endpoints/filters/impersonation/mode.go.
func (v *stepJudge) checkReviews() {
	want := v.expect.Reviews
	if want == nil {
		v.checkSubjectMatter()
		return
	}
	if !v.has(scenarios.Reviews) {
		v.addNotJudged("reviews")
		return
	}
	if countReviews(want) != len(v.decided) {
		v.compare("reviews", renderWanted(want), renderDecided(v.decided))
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

// checkSubjectMatter demands that one of the reviews about the user whom the request is carried out as asks for what the
// request does, where the scenario states no reviews. Of a request that impersonates nobody there has to be such a review,
// about the whole requestor, unless authorizers need not be asked.
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
		return choose(isDirect, text+" by "+u.Render(), text)
	}
	want := render(reviewOfRequest(info), v.authenticatedUser())
	got := seq.Map(reviews, func(d Decided) string { return render(Describe(d), reviewUser(d.Spec)) })
	v.compare("reviews (what they are about)", want, choose(slices.Contains(got, want), want, scenarios.List(got)))
}

// reviewsOfSubject returns the reviews about the user whom the request is carried out as. If somebody impersonates a user of
// his own name, nobody can say which reviews are about whom: it returns none.
func (v *stepJudge) reviewsOfSubject() []Decided {
	name, requestor := v.impersonatedName(), v.requestor.Username()
	if name != "" && name == requestor {
		return nil
	}
	subject := cmp.Or(name, requestor)
	return seq.Filter(v.decided, func(d Decided) bool { return d.Spec.User == subject })
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
// evidence shows it: not if it got no further than to authentication, or is of system:masters or for a path that is open to all.
func (v *stepJudge) mustAskAuthorizers(address *url.URL) bool {
	isAuthorized := v.event != nil && v.event.Annotations[decisionAnnotation] != ""
	isOpen := slices.Contains([]string{"/healthz", "/readyz", "/livez"}, address.Path)
	isPrivileged := slices.Contains(v.requestor.Groups, user.SystemPrivilegedGroup)
	return v.has(scenarios.Reviews) && isAuthorized && !isOpen && !isPrivileged
}

// countReviews returns how many reviews are wanted, those of groups in any order included.
func countReviews(want []scenarios.Review) int {
	return seq.Sum(want, func(w scenarios.Review) int { return max(1, len(w.Unordered)) })
}

// compareUnordered pairs each wanted review with an equal one; the rest is compared as sets, to show both sides.
func (v *stepJudge) compareUnordered(at int, want []scenarios.Review, got []Decided) {
	rest := slices.Clone(got)
	var missing []scenarios.Review
	for _, w := range want {
		i := slices.IndexFunc(rest, func(d Decided) bool { return len(v.compareAttributes(w, d)) == 0 })
		if i < 0 {
			missing = append(missing, w)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	expected, seen := renderWanted(missing), renderDecided(rest)
	if len(missing) > 0 && expected == seen { // What differs is not a part of the texts, such as the requestor's groups.
		d := v.compareAttributes(missing[0], rest[0])[0]
		expected, seen = expected+" with "+d.Field+" "+d.Want, seen+" with "+d.Field+" "+d.Got
	}
	v.compare(fmt.Sprintf("reviews[%d..%d]", at, at+len(want)-1), expected, seen)
}

// compareReview compares one review with the one that is wanted in its place.
func (v *stepJudge) compareReview(i int, want scenarios.Review, got Decided) {
	diffs := v.compareAttributes(want, got)
	v.result.Judged++
	for _, d := range diffs {
		d.Step, d.Field = v.index, fmt.Sprintf("reviews[%d].%s", i, d.Field)
		v.result.Differences = append(v.result.Differences, d)
	}
}

// compareAttributes returns the differences between a wanted and a seen review; Field is the attribute.
func (v *stepJudge) compareAttributes(want scenarios.Review, got Decided) (diffs []Difference) {
	check := func(field, w, g string) {
		if w != g {
			diffs = append(diffs, Difference{Field: field, Want: quote(w), Got: quote(g)})
		}
	}
	seen := Describe(got)
	check("user", v.subjectName(want.By), got.Spec.User)
	check("verb", want.Verb, seen.Verb)
	check("group", want.Group, seen.Group)
	check("version", want.Version, seen.Version)
	check("resource", want.Resource, seen.Resource)
	check("subresource", want.Subresource, seen.Subresource)
	check("namespace", want.Namespace, seen.Namespace)
	check("name", want.Name, seen.Name)
	check("path", want.Path, seen.Path)
	check("fieldSelector", want.FieldSelector, seen.FieldSelector)
	check("labelSelector", want.LabelSelector, seen.LabelSelector)
	check("decision", string(want.Decision), string(got.Decision))
	if want.Extra != nil {
		check("extra", scenarios.RenderExtra(want.Extra), scenarios.RenderExtra(reviewUser(got.Spec).Extra))
	}
	if want.By != scenarios.ByImpersonated {
		check("requestor", v.requestorInReview(want.Verb).Render(), reviewUser(got.Spec).Render())
	}
	return diffs
}

// subjectName returns the name of the user whose permission a review has to ask for.
func (v *stepJudge) subjectName(by scenarios.By) string {
	if by == scenarios.ByImpersonated {
		return v.impersonatedName()
	}
	return v.requestor.Username()
}

// Describe returns a seen review in the terms of an expectation.
func Describe(d Decided) scenarios.Review { return scenarios.ReviewOf(d.Spec, d.Decision) }

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

// describe returns an access review on one line, without its decision.
func describe(spec authorizationv1.SubjectAccessReviewSpec) string {
	return fmt.Sprintf("%q %s", spec.User, strings.TrimSuffix(RenderReview(Describe(Decided{Spec: spec})), " → "))
}

func renderWanted(want []scenarios.Review) string {
	return renderLines(want, func(w scenarios.Review) string {
		if len(w.Unordered) > 0 {
			return "in any order {" + renderWanted(w.Unordered) + "}"
		}
		return RenderReview(w)
	})
}

func renderDecided(got []Decided) string {
	return renderLines(got, func(d Decided) string { return RenderReview(Describe(d)) })
}

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
	At       time.Time                               `json:"at"` // when it arrived at the front
}

// Fold turns the reviews of one request, as they arrived at both points, into decisions. If a review reached the back, no
// authorizer before it had an opinion. Otherwise it was decided: by Deny if the scripted webhook said so, for no other
// authorizer ever does, else by Allow. Fold returns reviews that arrived behind the front, and not there, as stray.
func Fold(reviews []Review) (decided []Decided, stray []Review) {
	for _, r := range reviews {
		if r.Point == Front {
			decided = append(decided, Decided{Spec: r.Spec, Decision: scenarios.Allow, At: r.At})
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

// findUndecided returns the last review with this spec that did not reach the end of the chain yet, nil if there is none.
// Those of requests that were sent at the same time come between.
func findUndecided(decided []Decided, spec authorizationv1.SubjectAccessReviewSpec) *Decided {
	for i := range slices.Backward(decided) {
		d := &decided[i]
		if d.Decision != scenarios.NoOpinion && equality.Semantic.DeepEqual(d.Spec, spec) {
			return d
		}
	}
	return nil
}

// foldReviews returns the decisions of reviews, and demands that none is stray. Both points are one recorder, so it is the API
// server's fault if a review arrives behind the front only: it left out an authorizer, or asked two of them different things.
func (v *stepJudge) foldReviews(reviews []Review) []Decided {
	decided, stray := Fold(reviews)
	if len(stray) > 0 {
		v.compare(chainField, "none that has not passed its beginning", describe(stray[0].Spec))
	}
	return decided
}
