package oracle

import (
	"reflect"
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// Expect is the prediction as a scenario states it, so that a case made up by a
// program can be judged like one written by hand. What depends on the order of a
// Go map is stated as alternatives; if there are too many of them, as after a
// denial that can come at many points, it is left out.
func (p Prediction) Expect() *scenarios.Expect {
	impersonated, constraint, decision := p.Audit.ImpersonatedUser, p.Audit.Constraint, p.Audit.Decision
	e := &scenarios.Expect{
		Outcome: p.Outcome, Code: p.Code, User: p.User,
		Audit: &scenarios.AuditExpect{ImpersonatedUser: &impersonated, Constraint: &constraint, Decision: &decision},
	}
	if p.User != nil && p.finalHidden() {
		e.User = nil // it is judged by the final review, which nobody sees
	}
	if len(p.Messages) > 1 || p.varies() {
		if e.OneOf = p.oneOf(); len(e.OneOf) > maxAlternatives {
			e.OneOf = nil
		}
		return e
	}
	if len(p.Messages) == 1 {
		e.Message = p.Messages[0]
	}
	e.Reviews = []scenarios.Review{}
	for _, g := range p.Segments {
		var group []scenarios.Review
		for _, run := range g.Runs {
			for _, r := range visible(run) {
				group = append(group, withoutExtra(Describe(r)))
			}
		}
		if len(g.Runs) > 1 && len(group) > 1 {
			group = []scenarios.Review{{Unordered: group}}
		}
		e.Reviews = append(e.Reviews, group...)
	}
	if p.Counted {
		none := []scenarios.MetricDelta{} // stated as an empty list
		e.Metrics = &scenarios.MetricsExpect{Attempts: append(none, p.Attempts...), Authorizations: append(none, authorizations(anyOrder(p))...)}
	}
	return e
}

// maxAlternatives is how many alternatives are still worth reading.
const maxAlternatives = 24

// anyOrder is one of the sequences of a prediction.
func anyOrder(p Prediction) []Review {
	all, _ := p.Sequences()
	return all[0]
}

// oneOf are the possibilities, each once; none if they are too many to tell.
func (p Prediction) oneOf() (out []scenarios.Alternative) {
	all, complete := p.Possibilities()
	if !complete {
		return nil
	}
	for _, possible := range all {
		a := scenarios.Alternative{Message: possible.Message, Reviews: []scenarios.Review{}}
		for _, r := range visible(possible.Reviews) {
			a.Reviews = append(a.Reviews, withoutExtra(Describe(r)))
		}
		if p.Counted {
			a.Metrics = &scenarios.MetricsExpect{Attempts: slices.Clone(p.Attempts), Authorizations: authorizations(possible.Reviews)}
		}
		if !slices.ContainsFunc(out, func(b scenarios.Alternative) bool { return reflect.DeepEqual(a, b) }) {
			out = append(out, a)
		}
	}
	return out
}

// withoutExtra leaves the extra of a subject to the judge, who knows that of a
// requestor; IDs in it are made up by the server. Of the mode associated-node
// only names of keys are left, and these are stated.
func withoutExtra(r scenarios.Review) scenarios.Review {
	if _, rewritten := r.Extra[associatedNodeKeysKey]; !rewritten {
		r.Extra = nil
	}
	return r
}

// varies tells whether the number of reviews depends on the order of a map.
func (p Prediction) varies() bool {
	return slices.ContainsFunc(p.Segments, func(g Segment) bool {
		return len(g.Runs) > 1 && slices.ContainsFunc(g.Runs, func(run []Review) bool {
			return len(run) > 0 && !run[len(run)-1].Allowed()
		})
	})
}

// finalHidden tells whether the request itself was allowed before webhooks are
// asked.
func (p Prediction) finalHidden() bool {
	for _, g := range p.Segments {
		for _, run := range g.Runs {
			for _, r := range run {
				if r.By == scenarios.ByImpersonated && r.Hidden {
					return true
				}
			}
		}
	}
	return false
}
