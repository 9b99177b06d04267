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

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

func (v *stepJudge) reviews() {
	want := v.expect.Reviews
	if want == nil {
		v.about()
		return
	}
	if !v.has(scenarios.Reviews) {
		v.notJudged("reviews")
		return
	}
	if count(want) != len(v.decided) {
		v.compare("reviews", renderWanted(want), renderDecided(v.decided))
		return
	}
	at := 0
	for _, w := range want {
		if len(w.Unordered) == 0 {
			v.review(at, w, v.decided[at])
			at++
			continue
		}
		v.unordered(at, w.Unordered, v.decided[at:at+len(w.Unordered)])
		at += len(w.Unordered)
	}
}

// about judges, where no reviews are stated, that one of those about whom the request is carried out as asks what the
// request is, and of a request that impersonates nobody that there is one, about the whole requestor.
func (v *stepJudge) about() {
	address, err := url.Parse(v.o.Request.URL)
	direct := v.impersonated() == ""
	who := cmp.Or(v.impersonated(), v.requestor.Username())
	theirs := slices.DeleteFunc(slices.Clone(v.decided), func(d Decided) bool { return d.Spec.User != who || !direct && who == v.requestor.Username() })
	if err != nil || v.expect.OneOf != nil || len(theirs) == 0 && (!direct || !v.decides(address)) {
		return
	}
	info, err := scenarios.RequestInfo(v.o.Request.Method, address)
	if err != nil {
		return
	}
	want := scenarios.Review{Verb: info.Verb, Path: info.Path}
	if info.IsResourceRequest {
		want = scenarios.Review{Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name}
	}
	asker := ""
	if direct {
		asker = " by " + v.asker().Render()
	}
	says := func(r scenarios.Review, by string) string {
		return r.Verb + " " + r.Version + " " + RenderAbout(r) + by
	}
	got := seq.Map(theirs, func(d Decided) string {
		return says(Describe(d), orElse(direct, " by "+reviewUser(d.Spec).Render(), ""))
	})
	v.compare("reviews (what they are about)", says(want, asker), orElse(slices.Contains(got, says(want, asker)), says(want, asker), scenarios.List(got)))
}

// decides says whether the authorizers have to be asked about a request that impersonates nobody: not where it got no
// further than to authentication, of system:masters, nor of the paths that are open to all.
func (v *stepJudge) decides(address *url.URL) bool {
	open := slices.Contains([]string{"/healthz", "/readyz", "/livez"}, address.Path)
	return v.has(scenarios.Reviews) && v.event != nil && v.event.Annotations[decisionAnnotation] != "" && !open &&
		!slices.Contains(v.requestor.Groups, user.SystemPrivilegedGroup)
}

func count(want []scenarios.Review) int {
	return seq.Sum(want, func(w scenarios.Review) int { return max(1, len(w.Unordered)) })
}

// unordered pairs each wanted review with an equal one; the rest is compared as sets, to show both sides.
func (v *stepJudge) unordered(at int, want []scenarios.Review, got []Decided) {
	rest := slices.Clone(got)
	var missing []scenarios.Review
	for _, w := range want {
		i := slices.IndexFunc(rest, func(d Decided) bool { return len(v.differences(w, d)) == 0 })
		if i < 0 {
			missing = append(missing, w)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	expected, seen := renderWanted(missing), renderDecided(rest)
	if len(missing) > 0 && expected == seen { // What differs is not a part of the texts, such as the requestor's groups.
		d := v.differences(missing[0], rest[0])[0]
		expected, seen = expected+" with "+d.Field+" "+d.Want, seen+" with "+d.Field+" "+d.Got
	}
	v.compare(fmt.Sprintf("reviews[%d..%d]", at, at+len(want)-1), expected, seen)
}

func (v *stepJudge) review(i int, want scenarios.Review, got Decided) {
	diffs := v.differences(want, got)
	v.result.Judged++
	for _, d := range diffs {
		d.Step, d.Field = v.index, fmt.Sprintf("reviews[%d].%s", i, d.Field)
		v.result.Differences = append(v.result.Differences, d)
	}
}

// differences are those between a wanted and a seen review; Field is the attribute.
func (v *stepJudge) differences(want scenarios.Review, got Decided) (diffs []Difference) {
	check := func(field, w, g string) {
		if w != g {
			diffs = append(diffs, Difference{Field: field, Want: quote(w), Got: quote(g)})
		}
	}
	seen := Describe(got)
	check("user", v.userOf(want.By), got.Spec.User)
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
		check("requestor", v.askerIn(want.Verb).Render(), reviewUser(got.Spec).Render())
	}
	return diffs
}

func (v *stepJudge) userOf(by scenarios.By) string {
	if by == scenarios.ByImpersonated {
		return v.impersonated()
	}
	return v.requestor.Username()
}

// Describe is a seen review in the terms of an expectation.
func Describe(d Decided) scenarios.Review { return scenarios.ReviewOf(d.Spec, d.Decision) }

// RenderReview is a review on one line, for people.
func RenderReview(r scenarios.Review) string {
	who := ""
	if r.By == scenarios.ByImpersonated {
		who = "(impersonated) "
	}
	return who + r.Verb + " " + RenderAbout(r) + " → " + string(r.Decision)
}

// RenderAbout is what a review is about.
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

func describe(spec authorizationv1.SubjectAccessReviewSpec) string {
	return fmt.Sprintf("%q %s", spec.User, strings.TrimSuffix(RenderReview(Describe(Decided{Spec: spec})), " → "))
}

func renderWanted(want []scenarios.Review) string {
	return lines(want, func(w scenarios.Review) string {
		if len(w.Unordered) > 0 {
			return "in any order {" + renderWanted(w.Unordered) + "}"
		}
		return RenderReview(w)
	})
}

func renderDecided(got []Decided) string {
	return lines(got, func(d Decided) string { return RenderReview(Describe(d)) })
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

// Fold turns the reviews of one request, as they arrived at both points, into decisions: what reached the back was
// NoOpinion to everybody before it; what did not was decided, by Deny if the scripted webhook said so, for no
// other authorizer ever does, else by Allow. A review behind the front that was not seen there is returned in stray.
func Fold(reviews []Review) (decided []Decided, stray []Review) {
	for _, r := range reviews {
		if r.Point == Front {
			decided = append(decided, Decided{Spec: r.Spec, Decision: scenarios.Allow, At: r.At})
			continue
		}
		at := len(decided) - 1 // the last one like it: of requests at the same time others come between
		for at >= 0 && (decided[at].Decision == scenarios.NoOpinion || !equality.Semantic.DeepEqual(decided[at].Spec, r.Spec)) {
			at--
		}
		switch {
		case at < 0:
			stray = append(stray, r)
		case r.Point == Back:
			decided[at].Decision = scenarios.NoOpinion
		case r.Decision == scenarios.Deny:
			decided[at].Decision = scenarios.Deny
		}
	}
	return decided, stray
}

// folded are the decisions of reviews. Both points are one recorder, so a review that arrives behind the front only is the
// API server's: it left out an authorizer, or asked two of them different things.
func (v *stepJudge) folded(reviews []Review) []Decided {
	decided, stray := Fold(reviews)
	if len(stray) > 0 {
		v.compare(chainField, "none that has not passed its beginning", describe(stray[0].Spec))
	}
	return decided
}
