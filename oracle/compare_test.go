package oracle

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Difference is one point in which an expectation and a prediction differ.
type Difference struct {
	// Field is the path of the expectation, for example "reviews" or "audit.constraint".
	Field string
	// Expected is what the expectation says, Predicted what the model says.
	Expected, Predicted string
}

// differences collects them.
type differences []Difference

func (d *differences) add(field, expected, predicted string) {
	if expected != predicted {
		*d = append(*d, Difference{field, expected, predicted})
	}
}

// Compare compares all that an expectation states with the prediction. Where several things are possible, the
// expectation has to agree with each of them: otherwise it would be met on some runs only. Not compared are the
// code and the text of an answer that others write, and metrics that the server does not keep.
func (p Prediction) Compare(e *scenarios.Expect) []Difference {
	var out differences
	out.add("outcome", string(e.Outcome), string(p.Outcome))
	if e.Code != 0 && p.Code != 0 {
		out.add("code", strconv.Itoa(e.Code), strconv.Itoa(p.Code))
	}
	if e.User != nil {
		predicted := "nobody is impersonated"
		if p.User != nil {
			predicted = p.User.Render()
		}
		out.add("user", e.User.Render(), predicted)
	}
	for _, field := range scenarios.AuditFields() {
		if e.Audit != nil && field.Stated(e.Audit) != "" {
			out.add("audit."+field.Name, field.Stated(e.Audit), field.Stated(&p.Audit))
		}
	}
	stated := scenarios.Alternative{Message: e.Message, Reviews: e.Reviews, Metrics: e.Metrics}
	all, complete := p.Possibilities()
	for _, possible := range all {
		if before := len(out); before == 0 {
			out = append(out, p.compareWith(stated, e.MessageMatches, possible)...)
			out = append(out, p.alternatives(e.OneOf, possible)...)
		}
	}
	if complete {
		out = append(out, p.idle(e.OneOf, all)...)
	}
	return out
}

// compareWith compares what can vary with one of the things that are possible.
func (p Prediction) compareWith(e scenarios.Alternative, pattern string, possible Possibility) (out differences) {
	if m := possible.Message; m != "" {
		if e.Message != "" {
			out.add("message", e.Message, m)
		}
		if re, err := regexp.Compile("^(?:" + pattern + ")$"); pattern != "" &&
			(err != nil || !re.MatchString(m)) {
			out = append(out, Difference{"messageMatches", pattern, m})
		}
	}
	if e.Metrics != nil && p.Counted {
		out.add("metrics.attempts", scenarios.RenderDeltas(e.Metrics.Attempts), scenarios.RenderDeltas(p.Attempts))
		out.add(
			"metrics.authorizations",
			scenarios.RenderDeltas(e.Metrics.Authorizations),
			scenarios.RenderDeltas(authorizations(possible.Reviews)),
		)
	}
	if e.Reviews != nil {
		expected, predicted := p.reviews(e.Reviews, visibleReviews(possible.Reviews))
		out.add("reviews", expected, predicted)
	}
	return out
}

// alternatives compares what is possible with alternatives, of which one has to agree.
func (p Prediction) alternatives(list []scenarios.Alternative, possible Possibility) (out differences) {
	var all []string
	for _, a := range list {
		diffs := p.compareWith(a, "", possible)
		if len(diffs) == 0 {
			return nil
		}
		all = append(all, fmt.Sprint(diffs))
	}
	if len(list) > 0 {
		out.add("oneOf", "one of "+strings.Join(all, " or "), possible.Message+" after "+strconv.Itoa(len(possible.Reviews))+" reviews")
	}
	return out
}

// idle finds alternatives that are never seen.
func (p Prediction) idle(list []scenarios.Alternative, all []Possibility) (out differences) {
	for i, a := range list {
		if !slices.ContainsFunc(all, func(x Possibility) bool { return len(p.compareWith(a, "", x)) == 0 }) {
			out.add(fmt.Sprintf("oneOf[%d]", i), "is possible", "never happens")
		}
	}
	return out
}

// reviews compares expected reviews with one possible sequence. Reviews of an unordered group are put into the
// order of the sequence first.
func (p Prediction) reviews(expected []scenarios.Review, seq []Review) (want, got string) {
	var flat []scenarios.Review
	for _, e := range expected {
		group := slices.Clone(e.Unordered)
		if len(group) == 0 {
			flat = append(flat, e)
			continue
		}
		for n := len(group); n > 0; n-- {
			i := 0
			if at := len(flat); at < len(seq) {
				i = max(0, slices.IndexFunc(group, func(g scenarios.Review) bool { return p.renderWanted(g) == p.renderSeen(seq[at], g.Extra != nil) }))
			}
			flat = append(flat, group[i])
			group = slices.Delete(group, i, i+1)
		}
	}
	var wanted, seen []string
	for i, e := range flat {
		wanted = append(wanted, p.renderWanted(e))
		if i < len(seq) {
			seen = append(seen, p.renderSeen(seq[i], e.Extra != nil))
		}
	}
	for i := len(flat); i < len(seq); i++ {
		seen = append(seen, p.renderSeen(seq[i], false))
	}
	return scenarios.List(wanted), scenarios.List(seen)
}

// renderWanted is an expected review with its subject.
func (p Prediction) renderWanted(r scenarios.Review) string {
	user := p.Requestor.Name
	if r.By == scenarios.ByImpersonated {
		user = ""
		if p.User != nil {
			user = p.User.Name
		}
	}
	return renderReview(user, r)
}

// renderSeen is a predicted review in the same form.
func (p Prediction) renderSeen(r Review, extra bool) string {
	d := Describe(r)
	if !extra {
		d.Extra = nil
	}
	return renderReview(r.Spec.User, d)
}

// renderReview is a review on one line, every attribute named.
func renderReview(user string, r scenarios.Review) string {
	s := fmt.Sprintf("%s: %s", scenarios.Printable(user), r.Verb)
	for _, f := range []struct{ name, value string }{
		{"group", r.Group}, {"version", r.Version}, {"resource", r.Resource}, {"subresource", r.Subresource},
		{"namespace", r.Namespace}, {"name", r.Name}, {"path", r.Path},
		{"fieldSelector", r.FieldSelector}, {"labelSelector", r.LabelSelector},
	} {
		if f.value != "" {
			s += fmt.Sprintf(" %s=%q", f.name, scenarios.Printable(f.value))
		}
	}
	if r.Extra != nil {
		s += " extra=" + scenarios.RenderExtra(r.Extra)
	}
	return s + " → " + string(r.Decision)
}
