package verdicts

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// reviews judges the ordered list of access reviews.
func (v *stepJudge) reviews() {
	want := v.expect.Reviews
	if want == nil {
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

// count is the number of single reviews in an expectation.
func count(want []scenarios.Review) int {
	n := 0
	for _, w := range want {
		n += max(1, len(w.Unordered))
	}
	return n
}

// unordered pairs each wanted review with a seen one that equals it; what is left is compared as sets, so that the
// difference shows both sides.
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
	field := fmt.Sprintf("reviews[%d..%d]", at, at+len(want)-1)
	v.compare(field, renderWanted(missing), renderDecided(rest))
}

// review compares one review attribute by attribute.
func (v *stepJudge) review(i int, want scenarios.Review, got Decided) {
	diffs := v.differences(want, got)
	v.result.Judged++
	for _, d := range diffs {
		d.Step, d.Field = v.index, fmt.Sprintf("reviews[%d].%s", i, d.Field)
		v.result.Differences = append(v.result.Differences, d)
	}
}

// differences are those between a wanted and a seen review; Field is the attribute.
func (v *stepJudge) differences(want scenarios.Review, got Decided) []Difference {
	var diffs []Difference
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
	what := r.Path
	if r.Path == "" {
		what = r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		if r.Group != "" {
			what += "." + r.Group
		}
		if r.Name != "" {
			what += fmt.Sprintf(" %q", r.Name)
		}
		if r.Namespace != "" {
			what += " in " + r.Namespace
		}
	}
	who := ""
	if r.By == scenarios.ByImpersonated {
		who = "(impersonated) "
	}
	return who + r.Verb + " " + what + " → " + string(r.Decision)
}

func describe(spec authorizationv1.SubjectAccessReviewSpec) string {
	r := Describe(Decided{Spec: spec})
	return fmt.Sprintf("%q %s", spec.User, strings.TrimSuffix(RenderReview(r), " → "))
}

func renderWanted(want []scenarios.Review) string {
	var lines []string
	for _, w := range want {
		if len(w.Unordered) > 0 {
			lines = append(lines, "in any order {"+renderWanted(w.Unordered)+"}")
			continue
		}
		lines = append(lines, RenderReview(w))
	}
	return scenarios.List(lines)
}

func renderDecided(got []Decided) string {
	var lines []string
	for _, d := range got {
		lines = append(lines, RenderReview(Describe(d)))
	}
	return scenarios.List(lines)
}
