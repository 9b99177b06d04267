package certification

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/authzconf/authzconf/drafts/conditional/reference"
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
	"github.com/authzconf/authzconf/drafts/conditional/wire"
)

// faulty is an authorizer for KEP-5681 with one deliberate fault that real authorizers may have. Certification must
// reject each of them, for the reason of its own fault.
type faulty struct {
	// ID is a short name. Description says what is wrong.
	ID, Description string
	// Finding is the reason for which certification must reject it.
	Finding string

	make func(*reference.Authorizer) http.Handler
	// wire is the revision in which it is wrong, nil for the newest.
	wire *wire.Revision
}

// in returns the faulty authorizer in a revision.
func (r faulty) in(w *wire.Revision) faulty {
	r.wire = w
	return r
}

// revision returns the revision of the wire that the faulty authorizer speaks.
func (r faulty) revision() *wire.Revision { return cmp.Or(r.wire, wire.Newest()) }

// Handler returns the webhook: it uses the policies of the authorizer, with the fault.
func (r faulty) Handler(a *reference.Authorizer) http.Handler { return r.make(a) }

// faultyAuthorizers returns all faulty authorizers, in an order that does not change.
func faultyAuthorizers() []faulty {
	return slices.Concat(decisions(), strengths(), formFaults(), contents(), upstream(), evaluations(), data(), states())
}

type (
	spec     = vectors.SubjectAccessReviewSpec
	status   = vectors.SubjectAccessReviewStatus
	request  = vectors.AuthorizationConditionsRequest
	response = vectors.AuthorizationConditionsResponse
)

// phases is an authorizer with either phase replaced.
type phases struct {
	*reference.Authorizer
	first  func(spec) status
	second func(*request) response
}

func (p phases) Review(s spec) status {
	if p.first == nil {
		return p.Authorizer.Review(s)
	}
	return p.first(s)
}

func (p phases) Evaluate(r *request) response {
	if p.second == nil {
		return p.Authorizer.Evaluate(r)
	}
	return p.second(r)
}

// reviews returns a faulty authorizer whose first phase is wrong.
func reviews(id, finding, description string, wrong func(a *reference.Authorizer, s spec) status) faulty {
	return faulty{ID: id, Description: description, Finding: finding, make: func(a *reference.Authorizer) http.Handler {
		return reference.Handler(a.Wire, phases{Authorizer: a, first: func(s spec) status { return wrong(a, s) }})
	}}
}

// changes is a faulty authorizer that changes the right answer of the first phase.
func changes(id, finding, description string, change func(s spec, st *status)) faulty {
	return reviews(id, finding, description, func(a *reference.Authorizer, s spec) status {
		st := a.Review(s)
		change(s, &st)
		return st
	})
}

// rewrites is a faulty authorizer that changes each condition of the right answer.
func rewrites(id, finding, description string, change func(s spec, c *vectors.Condition)) faulty {
	return changes(id, finding, description, func(s spec, st *status) {
		for i := range st.ConditionsChain {
			for k := range st.ConditionsChain[i].Conditions {
				change(s, &st.ConditionsChain[i].Conditions[k])
			}
		}
	})
}

// sees is a faulty authorizer that evaluates other data than it was sent.
func sees(id, finding, description string, change func(d *vectors.ConditionData)) faulty {
	return evaluates(id, finding, description, func(a *reference.Authorizer, r *request) response {
		change(&r.ConditionData)
		return a.Evaluate(r)
	})
}

// evaluates returns a faulty authorizer whose second phase is wrong.
func evaluates(id, finding, description string, wrong func(a *reference.Authorizer, r *request) response) faulty {
	return faulty{ID: id, Description: description, Finding: finding, make: func(a *reference.Authorizer) http.Handler {
		return reference.Handler(a.Wire, phases{Authorizer: a, second: func(r *request) response { return wrong(a, r) }})
	}}
}

// concludes is a faulty authorizer that makes another decision of the truths of a set.
func concludes(id, finding, description string, wrong func(set vectors.ConditionSet, truth reference.Evaluator) vectors.Decision) faulty {
	return evaluates(id, finding, description, func(a *reference.Authorizer, r *request) response {
		data := r.ConditionData.Variables()
		if len(r.ConditionSets) == 0 ||
			slices.ContainsFunc(r.ConditionSets[0].Conditions, func(c vectors.Condition) bool { return c.Type != a.Type }) {
			return a.Evaluate(r)
		}
		e := wrong(r.ConditionSets[0], func(c vectors.Condition) (bool, error) { return reference.Holds(c.Condition, data) })
		return response{Allowed: e == vectors.Allow, Denied: e == vectors.Deny}
	})
}

// raw returns a faulty authorizer that changes what is sent over the wire.
func raw(id, finding, description string, wrap func(http.Handler) http.Handler) faulty {
	return faulty{
		ID:          id,
		Description: description,
		Finding:     finding,
		make:        func(a *reference.Authorizer) http.Handler { return wrap(reference.Handler(a.Wire, a)) },
	}
}
