package certify

import (
	"maps"
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// firstQuestions returns the questions that are asked before all others. The first is about something that is not
// granted, to find an authorizer that allows everything until it has the policy. The others are about grants, to find
// one that allows nothing until then.
func (b *Plan) firstQuestions() (out []Question) {
	for i := 0; i < len(b.Scenario) && len(out) <= preflightQuestions; i++ {
		if v := scatteredQuestion(b.Scenario, i); (v.Expect == scenarios.Allow) == (len(out) > 0) {
			out = append(out, v)
		}
	}
	return out
}

// repeatableQuestions returns the questions that can be asked again at any time.
func (b *Plan) repeatableQuestions() (out []*Question) {
	for i := range b.all {
		v := &b.all[i]
		isReview := v.Form == b.plainForm && v.Expect != ""
		if isReview && v.Level != Robust {
			out = append(out, v)
		}
	}
	return out
}

// stride is a prime. Stepping by it visits every element of a list, unless the length of the list is a multiple of it.
const stride = 7919

// scatteredQuestion returns the i-th question of a list in an order in which neighbours are far apart.
func scatteredQuestion[Q any](all []Q, i int) Q { return all[i*stride%len(all)] }

// neighbouringQuestion returns the i-th question of a list in an order in which neighbours stay together and each
// question comes twice. Neighbours are usually of one user. So an authorizer that mixes up questions which it answers
// at the same time gives one of them the answer of another user, or of another question of the same user.
func neighbouringQuestion(all []*Question, i int) *Question {
	return all[(i/40*stride+i%40/2)%len(all)]
}

// pickQuestions returns n questions of a list, in the order that nth gives.
func pickQuestions(all []*Question, n int, nth func(all []*Question, i int) *Question) []Question {
	out := make([]Question, n)
	for i := range out {
		out[i] = *nth(all, i)
	}
	return out
}

// repeatLevel returns the level for which questions are asked again.
func (b *Plan) repeatLevel() CertificationLevel {
	if slices.Contains(b.levels, Safe) {
		return Safe
	}
	return Robust
}

// repeatedQuestions returns, by check, the questions that are asked first and those that are asked again for the levels
// Robust and Safe, in their order. For level Safe some are asked at the same time, and nothing else is repeated.
func (b *Plan) repeatedQuestions() map[string][]Question {
	if b.repeatLevel() == Safe {
		return b.concurrentQuestions()
	}
	all := b.repeatableQuestions()
	out := map[string][]Question{
		firstCheck:   b.firstQuestions(),
		http1Check:   pickQuestions(all, keepAliveReviews, scatteredQuestion),
		http2Check:   pickQuestions(all, keepAliveReviews, scatteredQuestion),
		driftCheck:   pickQuestions(all, b.driftCount, scatteredQuestion),
		silenceCheck: b.silenceQuestions(),
	}
	maps.Copy(out, b.concurrentQuestions())
	return out
}

// repeatChecks returns the checks that ask questions again, in their order.
func (b *Plan) repeatChecks() []string {
	atOnce := seq.Map(b.concurrentChecks(), func(f concurrentCheck) string { return f.check })
	if b.repeatLevel() == Safe {
		return atOnce
	}
	return slices.Concat([]string{firstCheck, http1Check, http2Check}, atOnce, []string{silenceCheck, driftCheck})
}
