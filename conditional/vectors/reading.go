package vectors

import "cmp"

// Reading is when the authorizers behind a conditional allow are asked.
type Reading string

// The readings ("Computing a concrete decision from a conditional authorization
// chain"): Lazy asks them during admission, if at all; Eager asks all before.
const (
	Lazy  Reading = "lazy"
	Eager Reading = "eager"
)

// Wanted is what comes of the request in one of the readings.
func (m *Machinery) Wanted(r Reading) Want {
	w := m.Want
	if r == Lazy || m.Eager == nil {
		return w
	}
	e := m.Eager
	w.Authorized, w.Decision = cmp.Or(e.Authorized, w.Authorized), cmp.Or(e.Decision, w.Decision)
	w.Starts, w.Proceeds = cmp.Or(e.Starts, w.Starts), cmp.Or(e.Proceeds, w.Proceeds)
	w.Error, w.Admitted = cmp.Or(e.Error, w.Error), cmp.Or(e.Admitted, w.Admitted)
	for _, list := range []struct{ from, to *[]string }{
		{&e.Asked, &w.Asked}, {&e.ConditionsChain, &w.ConditionsChain}, {&e.AskedLater, &w.AskedLater}, {&e.EvaluatedBy, &w.EvaluatedBy},
	} {
		if *list.from != nil {
			*list.to = *list.from
		}
	}
	if e.Decisions != nil {
		w.Decisions = e.Decisions
	}
	return w
}
