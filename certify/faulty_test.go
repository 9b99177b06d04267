package certify

import (
	"net/http"
	"slices"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
)

// faultyAuthorizer is one wrong authorizer.
type faultyAuthorizer struct {
	// ID is a short name, Description says what is wrong.
	ID, Description string
	// Finding is the reason for which certification must reject it.
	Finding string

	make func(p *policy.Policy) http.Handler
}

// Handler is the webhook, with a state of its own.
func (r faultyAuthorizer) Handler(p *policy.Policy) http.Handler { return r.make(p) }

// faultyAuthorizers are the faulty authorizers, in an order that does not change.
func faultyAuthorizers() []faultyAuthorizer { return slices.Concat(faultyClasses()...) }

// faultyClasses are the same by class.
func faultyClasses() [][]faultyAuthorizer {
	return [][]faultyAuthorizer{modeFaults(), kindFaults(), identityFaults(), versionFaults(), clientFaults(), answerFaults(), refusalFaults(), oddFaults(), stateFaults()}
}

// decides is a faulty authorizer that decides wrongly, with the right decision at hand.
func decides(id, finding, description string, wrong func(right reference.Decider) reference.Decider) faultyAuthorizer {
	return faultyAuthorizer{id, description, finding, func(p *policy.Policy) http.Handler {
		return reference.Handler(wrong(p.Decide))
	}}
}

// speaks is a faulty authorizer that decides rightly and says it wrongly.
func speaks(id, finding, description string, wrong func(right http.Handler, p *policy.Policy) http.Handler) faultyAuthorizer {
	return faultyAuthorizer{id, description, finding, func(p *policy.Policy) http.Handler {
		return wrong(reference.Handler(p.Decide), p)
	}}
}
