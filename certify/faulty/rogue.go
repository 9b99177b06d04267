// Package faulty has authorizers that are wrong on purpose, each in one way that
// real ones are. Certification must reject every one of them, for its own reason;
// what it does not reject it does not test.
package faulty

import (
	"net/http"
	"slices"

	"github.com/authzconf/authzconf/certify/policy"
	"github.com/authzconf/authzconf/certify/reference"
)

// Rogue is one wrong authorizer.
type Rogue struct {
	// ID is a short name, Description says what is wrong.
	ID, Description string
	// Finding is the reason for which certification must reject it.
	Finding string

	make func(p *policy.Policy) http.Handler
}

// Handler is the webhook, with a state of its own.
func (r Rogue) Handler(p *policy.Policy) http.Handler { return r.make(p) }

// All are the rogues, in an order that does not change.
func All() []Rogue {
	return slices.Concat(verbs(), modes(), attributes(), kinds(), identities(), versions(), clients(), answers(), refusals(), states())
}

// mutant is a rogue whose engine has one part changed.
func mutant(id, finding, description string, change func(*engine)) Rogue {
	return Rogue{id, description, finding, func(p *policy.Policy) http.Handler {
		e := newEngine()
		change(e)
		return reference.Handler(e.decider(p))
	}}
}

// decides is a rogue that decides wrongly, with the right decision at hand.
func decides(id, finding, description string, wrong func(right reference.Decider) reference.Decider) Rogue {
	return Rogue{id, description, finding, func(p *policy.Policy) http.Handler {
		return reference.Handler(wrong(p.Decide))
	}}
}

// speaks is a rogue that decides rightly and says it wrongly.
func speaks(id, finding, description string, wrong func(right http.Handler, p *policy.Policy) http.Handler) Rogue {
	return Rogue{id, description, finding, func(p *policy.Policy) http.Handler {
		return wrong(reference.Handler(p.Decide), p)
	}}
}
