package oracle

import (
	"slices"

	"github.com/authzconf/authzconf/scenarios"
)

// maxOrders is how many orders of runs are looked at: all those of maxRuns keys.
const (
	maxRuns   = 5
	maxOrders = 120
)

// orders are the runs in every order, each order once and at most maxOrders of them. A run that ends it has none behind
// it.
func orders[T any](runs [][]T, ends func(run []T) bool) (out [][]T) {
	used := make([]bool, len(runs))
	var extend func(head []T, left int)
	extend = func(head []T, left int) {
		if left == 0 {
			out = append(out, head)
			return
		}
		for i, run := range runs {
			if used[i] || len(out) == maxOrders {
				continue
			}
			used[i] = true
			if longer := slices.Concat(head, run); ends(run) {
				extend(longer, 0)
			} else {
				extend(longer, left-1)
			}
			used[i] = false
		}
	}
	extend(nil, len(runs))
	return out
}

func denied(run []Review) bool { return len(run) > 0 && !run[len(run)-1].Allowed() }

// Sequences are the possible sequences of all reviews, what webhooks do not see included. There is one, unless
// several keys of extra were asked one by one. complete is false if there are more than are listed; each possible
// part then occurs in one of them.
func (p Prediction) Sequences() (all [][]Review, complete bool) {
	all, complete = [][]Review{nil}, true
	for _, g := range p.Segments {
		possible := orders(g.Runs, denied)
		complete = complete && len(g.Runs) <= maxRuns
		var longer [][]Review
		if len(all)*len(possible) <= maxOrders {
			for _, head := range all {
				for _, tail := range possible {
					longer = append(longer, slices.Concat(head, tail))
				}
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
	// Reviews are all reviews in order.
	Reviews []Review
	// Message is the text of the answer; empty if others write it.
	Message string
}

// Possibilities are all of them, one unless the order of a Go map has a part in it; complete is that of Sequences.
func (p Prediction) Possibilities() (out []Possibility, complete bool) {
	all, complete := p.Sequences()
	for _, seq := range all {
		messages := p.messages(seq)
		if len(messages) == 0 {
			messages = []string{""}
		}
		for _, m := range messages {
			out = append(out, Possibility{seq, m})
		}
	}
	return out, complete
}

// messages are the texts that can go with a sequence: of impersonation that is forbidden, the first denial in the
// order of the modes.
func (p Prediction) messages(seq []Review) []string {
	if p.Outcome != scenarios.ImpersonationForbidden {
		return p.Messages
	}
	for _, at := range p.Trace {
		if len(at.Messages) == 0 {
			continue
		}
		last := -1
		for i, r := range seq {
			if r.Mode == at.Mode {
				last = i
			}
		}
		if at.Refused || last < 0 {
			return at.Messages
		}
		return slices.DeleteFunc([]string{seq[last].text}, func(m string) bool { return m == unknownText })
	}
	return nil
}

// authorizations is the increase of apiserver_impersonation_authorization_attempts_total over a sequence, sorted.
func authorizations(seq []Review) (out []scenarios.MetricDelta) {
	for _, r := range seq {
		if r.Mode != "" {
			out = append(out, scenarios.MetricDelta{Mode: string(r.Mode), Decision: scenarios.DecisionLabel(r.Answer.Decision), Count: 1})
		}
	}
	return scenarios.SumDeltas(out)
}
