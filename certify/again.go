package certify

import (
	"maps"
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// first returns the questions that are asked before all others. The first is about something that is not granted, to
// find an authorizer that allows everything until it has the policy. The others are about grants, to find one that
// allows nothing until then.
func (b *Plan) first() (out []Question) {
	for i := 0; i < len(b.Scenario) && len(out) <= preflighted; i++ {
		if v := spreadOut(b.Scenario, i); (v.Expect == scenarios.Allow) == (len(out) > 0) {
			out = append(out, v)
		}
	}
	return out
}

// repeatable returns the questions that can be asked again at any time.
func (b *Plan) repeatable() (out []*Question) {
	for i := range b.all {
		if v := &b.all[i]; v.Form == b.plainForm && v.Expect != "" && v.Level != Robust {
			out = append(out, v)
		}
	}
	return out
}

// stride is a prime. Stepping by it visits every element of a list, unless the length of the list is a multiple of it.
const stride = 7919

// spreadOut returns the i-th question of a list in an order in which neighbours are far apart.
func spreadOut[Q any](all []Q, i int) Q { return all[i*stride%len(all)] }

// keepTogether returns the i-th question of a list in an order in which neighbours stay together and each question comes
// twice. Neighbours are usually of one user. So an authorizer that mixes up questions which it answers at the same time
// gives one of them the answer of another user, or of another question of the same user.
func keepTogether(all []*Question, i int) *Question { return all[(i/40*stride+i%40/2)%len(all)] }

// pick returns n questions of a list, in the order that nth gives.
func pick(all []*Question, n int, nth func(all []*Question, i int) *Question) []Question {
	out := make([]Question, n)
	for i := range out {
		out[i] = *nth(all, i)
	}
	return out
}

// repeatedFor returns the level for which questions are asked again.
func (b *Plan) repeatedFor() CertificationLevel {
	if slices.Contains(b.levels, Safe) {
		return Safe
	}
	return Robust
}

// askedAgain returns, by check, the questions that are asked first and those that are asked again for the levels Robust
// and Safe, in their order. For level Safe some are asked at the same time, and nothing else is repeated.
func (b *Plan) askedAgain() map[string][]Question {
	if b.repeatedFor() == Safe {
		return b.askedAtOnce()
	}
	all := b.repeatable()
	out := map[string][]Question{
		first: b.first(), http1: pick(all, keptAlive, spreadOut), http2: pick(all, keptAlive, spreadOut), drift: pick(all, b.after, spreadOut),
		silence: b.askedInSilence(),
	}
	maps.Copy(out, b.askedAtOnce())
	return out
}

// checksAgain returns the checks that ask questions again, in their order.
func (b *Plan) checksAgain() []string {
	atOnce := seq.Map(b.formations(), func(f formation) string { return f.check })
	if b.repeatedFor() == Safe {
		return atOnce
	}
	return slices.Concat([]string{first, http1, http2}, atOnce, []string{silence, drift})
}
