package certify

import (
	"net/http"
	"slices"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
)

// faultyAuthorizer is an authorizer that is wrong in one way.
type faultyAuthorizer struct {
	// ID is a short name, and Description says what is wrong.
	ID, Description string
	// Finding is the reason for which certification must reject it.
	Finding string

	make func(p *policy.Policy) http.Handler
}

// Handler returns the webhook, with a state of its own.
func (r faultyAuthorizer) Handler(p *policy.Policy) http.Handler { return r.make(p) }

// faultyAuthorizers returns the faulty authorizers, always in the same order.
func faultyAuthorizers() []faultyAuthorizer { return slices.Concat(faultyClasses()...) }

// faultyClasses returns the faulty authorizers by class.
func faultyClasses() [][]faultyAuthorizer {
	return [][]faultyAuthorizer{
		modeFaults(),
		kindFaults(),
		identityFaults(),
		versionFaults(),
		clientFaults(),
		answerFaults(),
		refusalFaults(),
		oddFaults(),
		stateFaults(),
	}
}

// decides makes a faulty authorizer that decides wrongly. wrong gets the right decision.
func decides(id, finding, description string, wrong func(right reference.Decider) reference.Decider) faultyAuthorizer {
	return faultyAuthorizer{id, description, finding, func(p *policy.Policy) http.Handler {
		return reference.Handler(wrong(p.Decide))
	}}
}

// speaks makes a faulty authorizer that decides correctly and answers wrongly.
func speaks(id, finding, description string, wrong func(right http.Handler, p *policy.Policy) http.Handler) faultyAuthorizer {
	return faultyAuthorizer{id, description, finding, func(p *policy.Policy) http.Handler {
		return wrong(reference.Handler(p.Decide), p)
	}}
}
