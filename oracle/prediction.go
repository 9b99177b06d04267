package oracle

import (
	"reflect"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// maxOrders is how many orders of runs are looked at: all those of maxRuns keys.
const (
	maxRuns   = 5
	maxOrders = 120
)

// orders returns the runs in every order, each once and at most maxOrders. A run that ends it has none behind it.
func orders[T any](runs [][]T, ends func(run []T) bool) (out [][]T) {
	isUsed := make([]bool, len(runs))
	var extend func(head []T, left int)
	extend = func(head []T, left int) {
		if left == 0 {
			out = append(out, head)
			return
		}
		for i, run := range runs {
			if isUsed[i] || len(out) == maxOrders {
				continue
			}
			isUsed[i] = true
			if longer := slices.Concat(head, run); ends(run) {
				extend(longer, 0)
			} else {
				extend(longer, left-1)
			}
			isUsed[i] = false
		}
	}
	extend(nil, len(runs))
	return out
}

func endsDenied(run []Review) bool { return len(run) > 0 && !run[len(run)-1].Allowed() }

// Sequences returns the possible sequences of all reviews, what webhooks do not see included. There is one, unless several
// keys of extra were asked one by one. complete is false if there are more; each possible part is then in one.
func (p Prediction) Sequences() (all [][]Review, complete bool) {
	all, complete = [][]Review{nil}, true
	for _, g := range p.Segments {
		possible := orders(g.Runs, endsDenied)
		complete = complete && len(g.Runs) <= maxRuns
		var longer [][]Review
		if len(all)*len(possible) <= maxOrders {
			for _, head := range all {
				longer = append(longer, seq.Map(possible, func(tail []Review) []Review { return slices.Concat(head, tail) })...)
			}
		} else {
			complete = false
			for i := range max(len(all), len(possible)) {
				longer = append(longer, slices.Concat(all[i%len(all)], possible[i%len(possible)]))
			}
		}
		all = longer
	}
	return all, complete
}

// Possibility is one of the things that a server can do with a request.
type Possibility struct {
	Reviews []Review // all reviews in order
	Message string   // the text of the answer; empty if others write it
}

// Possibilities returns all that a server can do with the request, one unless the order of a Go map has a part in it; complete is that of Sequences.
func (p Prediction) Possibilities() (out []Possibility, complete bool) {
	all, complete := p.Sequences()
	for _, sequence := range all {
		messages := p.messages(sequence)
		if len(messages) == 0 {
			messages = []string{""}
		}
		out = append(out, seq.Map(messages, func(m string) Possibility { return Possibility{sequence, m} })...)
	}
	return out, complete
}

// messages returns the texts that can go with a sequence: if forbidden, of the first denial in the order of the modes.
func (p Prediction) messages(sequence []Review) []string {
	if p.Outcome != scenarios.ImpersonationForbidden {
		return p.Messages
	}
	for _, at := range p.Trace {
		if len(at.Messages) == 0 {
			continue
		}
		last := -1
		for i, r := range sequence {
			if r.Mode == at.Mode {
				last = i
			}
		}
		if at.Refused || last < 0 {
			return at.Messages
		}
		return slices.DeleteFunc([]string{sequence[last].text}, func(m string) bool { return m == unknownText })
	}
	return nil
}

// authorizations returns the increase of apiserver_impersonation_authorization_attempts_total over a sequence, sorted.
func authorizations(sequence []Review) (out []scenarios.MetricDelta) {
	for _, r := range sequence {
		if r.Mode != "" {
			out = append(out, scenarios.MetricDelta{Mode: string(r.Mode), Decision: scenarios.DecisionLabel(r.Answer.Decision), Count: 1})
		}
	}
	return scenarios.SumDeltas(out)
}

// Mode is a kind of constrained impersonation (associated-node, arbitrary-node, serviceaccount or user-info), or legacy, the
// original impersonation.
type Mode string

// The modes, in the order in which a server that remembers nothing tries them (allImpersonationModes).
const (
	AssociatedNode Mode = "associated-node"
	ArbitraryNode  Mode = "arbitrary-node"
	ServiceAccount Mode = "serviceaccount"
	UserInfo       Mode = "user-info"
	Legacy         Mode = "legacy"
)

// Modes returns all modes, in order.
func Modes() []Mode { return []Mode{AssociatedNode, ArbitraryNode, ServiceAccount, UserInfo, Legacy} }

// Prediction is what a server is expected to do with a request.
type Prediction struct {
	Outcome scenarios.Outcome // always one
	Code    int               // 400, 403 or 500; 0 if what comes behind authorization decides it
	// Messages are the possible texts of the answer, several if by the order of a Go map; none where others write it.
	Messages []string
	// Requestor authenticated.
	Requestor scenarios.User
	Wanted    *scenarios.User // the user that the headers ask for; nil if they say nothing
	User      *scenarios.User // the resulting user; nil if nobody is impersonated
	Mode      Mode            // the mode that succeeded; empty if none did or none was needed
	Segments  []Segment       // the access reviews, in order, the final one included
	// Audit is what the audit event says. Every field is predicted.
	Audit scenarios.AuditExpect
	// Counted says whether the server keeps impersonation metrics, and Attempts is the increase of
	// apiserver_impersonation_attempts_total.
	Counted  bool
	Attempts []scenarios.MetricDelta
	// Trace says mode by mode how it came to this.
	Trace []Attempt
}

// Review is one question to the authorizers.
type Review struct {
	// By says whose permission is asked.
	By scenarios.By
	// Mode is the impersonation mode that asks; empty for an ordinary review.
	Mode Mode
	Spec authorizationv1.SubjectAccessReviewSpec // the question
	// Answer is what the chain said, and Hidden that webhooks do not see the question: it was decided before them.
	Answer AuthorizerDecision
	Hidden bool
	text   string // that of the error if the server does not go on
}

// Allowed reports whether the answer lets the server go on: not after an error in the filter of servers without the gate.
func (r Review) Allowed() bool { return r.Answer.Decision == scenarios.Allow }

// Segment is a part of the sequence of reviews. A single run is in order. Of several, each in order within itself,
// any can be first, because a Go map is walked: if a run ends with a denial, no other follows it; so either all
// runs come, in any order, or some of those that are allowed and then one that is not.
type Segment struct {
	Runs [][]Review
}

// Attempt is what became of one mode.
type Attempt struct {
	Mode Mode
	// Remembered says that the mode was tried first because it was the last to succeed for this requestor.
	Remembered bool
	// NotApplicable says why the mode has nothing to say about the request; empty if it has.
	NotApplicable string
	// Cached says what was not asked because an earlier success is remembered.
	Cached   string
	Segments []Segment // the reviews of this mode
	// Refused says that the mode refuses what is wanted without asking anybody.
	Refused  bool
	Messages []string // the possible error texts; none if the mode allowed
	// Allowed says that the mode succeeded.
	Allowed bool
}

// Expect returns the prediction as a scenario states it, so that a case generated by a program can be judged like one
// written by hand. What depends on the order of a Go map is stated as alternatives; if there are too many of them,
// as after a denial that can come at many points, it is left out.
func (p Prediction) Expect() *scenarios.Expect {
	e := &scenarios.Expect{Outcome: p.Outcome, Code: p.Code, User: p.User, Audit: &p.Audit}
	if p.User != nil && p.isFinalHidden() {
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
		group := stateReviews(slices.Concat(g.Runs...))
		if len(g.Runs) > 1 && len(group) > 1 {
			group = []scenarios.Review{{Unordered: group}}
		}
		e.Reviews = append(e.Reviews, group...)
	}
	if p.Counted {
		all, _ := p.Sequences()           // the order does not matter to the sums
		none := []scenarios.MetricDelta{} // stated as an empty list
		e.Metrics = &scenarios.MetricsExpect{Attempts: append(none, p.Attempts...), Authorizations: append(none, authorizations(all[0])...)}
	}
	return e
}

// maxAlternatives is how many alternatives are still worth reading.
const maxAlternatives = 24

// oneOf returns the possibilities, each once; none if they are too many to tell.
func (p Prediction) oneOf() (out []scenarios.Alternative) {
	all, complete := p.Possibilities()
	if !complete {
		return nil
	}
	for _, possible := range all {
		a := scenarios.Alternative{Message: possible.Message, Reviews: append([]scenarios.Review{}, stateReviews(possible.Reviews)...)}
		if p.Counted {
			a.Metrics = &scenarios.MetricsExpect{Attempts: slices.Clone(p.Attempts), Authorizations: authorizations(possible.Reviews)}
		}
		if !slices.ContainsFunc(out, func(b scenarios.Alternative) bool { return reflect.DeepEqual(a, b) }) {
			out = append(out, a)
		}
	}
	return out
}

// stateReviews returns the reviews that a webhook sees as expectations have them, which leave the extra of a subject to the judge,
// who knows that of a requestor; IDs in it are generated by the server. Of the mode associated-node only names of keys
// are left, and these are stated.
func stateReviews(sequence []Review) []scenarios.Review {
	return seq.Map(visibleReviews(sequence), func(r Review) scenarios.Review {
		d := Describe(r)
		if _, rewritten := d.Extra[scenarios.AssociatedNodeKeysKey]; !rewritten {
			d.Extra = nil
		}
		return d
	})
}

// varies reports whether the number of reviews depends on the order of a map.
func (p Prediction) varies() bool {
	return slices.ContainsFunc(p.Segments, func(g Segment) bool {
		return len(g.Runs) > 1 && slices.ContainsFunc(g.Runs, endsDenied)
	})
}

// isFinalHidden reports whether the request itself was allowed before webhooks are asked.
func (p Prediction) isFinalHidden() bool {
	hidden := func(r Review) bool { return r.By == scenarios.ByImpersonated && r.Hidden }
	return slices.ContainsFunc(p.Segments, func(g Segment) bool { return slices.ContainsFunc(slices.Concat(g.Runs...), hidden) })
}

func visibleReviews(sequence []Review) []Review {
	return slices.DeleteFunc(slices.Clone(sequence), func(r Review) bool { return r.Hidden })
}

// Describe returns a predicted review in the terms of an expectation.
func Describe(r Review) scenarios.Review {
	d := scenarios.ReviewOf(r.Spec, r.Answer.Decision)
	if r.By == scenarios.ByImpersonated {
		d.By = r.By
	}
	return d
}
