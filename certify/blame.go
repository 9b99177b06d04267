package certify

import (
	"slices"

	"github.com/authzconf/authzconf/verdicts"
)

// answerKey identifies what was asked: a question in a check.
type answerKey struct{ check, vector string }

// key returns what was asked: the question and the check.
func (a Answer) key() answerKey { return answerKey{a.Check, a.Vector} }

// controls has what the reference authorizer answered where another authorizer was wrong.
type controls struct {
	plan *Plan
	// answers are the reference's answers to the same questions. wrong are those of them that are wrong.
	answers, wrong map[answerKey]Answer
	rates          map[string]Rate
}

// newControls collects the answers of the reference authorizer, and which of them are wrong.
func (b *Plan) newControls(answers []Answer) controls {
	c := controls{b, map[answerKey]Answer{}, map[answerKey]Answer{}, map[string]Rate{}}
	var controlAnswers []Answer
	for _, a := range answers {
		if !a.Control {
			continue
		}
		a.Control = false
		controlAnswers = append(controlAnswers, a)
		if a.Stage != nil {
			continue
		}
		c.answers[a.key()] = a
		if b.isWrong(a) {
			c.wrong[a.key()] = a
		}
	}
	for _, r := range b.rates(controlAnswers) {
		c.rates[r.check()] = r
	}
	return c
}

// isWrong reports whether something is wrong with an answer, or whether it cannot be judged.
func (b *Plan) isWrong(a Answer) bool {
	if a.ClusterObservation != nil {
		j, err := b.judgeObservation(a)
		failed := j.reason != "" || j.unclear
		return err == nil && failed
	}
	v, isKnown := b.findQuestion(a.Vector)
	if !isKnown {
		return false
	}
	return len(judge(v, a)) > 0 || a.Connections > maxConnections
}

// blame returns whose fault a wrong answer is. If the authorizer cannot be reached, nothing of its decisions is seen,
// so that is the environment's fault. Otherwise it is the authorizer's fault if the reference answered the same
// question correctly. If the reference did not, it is the fault of the API server where one takes part, or else of the
// harness. It is empty if the reference was not asked.
func (c controls) blame(a Answer, reason string) verdicts.Blame {
	if slices.Contains(unreachableFaults, reason) {
		return verdicts.BlameEnvironment
	}
	if _, isAnswered := c.answers[a.key()]; !isAnswered {
		return ""
	}
	wrong, isWrong := c.wrong[a.key()]
	switch {
	case a.Fault != "" && c.isOverloaded(a.Check):
		return verdicts.BlameEnvironment
	case !isWrong:
		return verdicts.BlameAuthorizer
	case wrong.ClusterObservation == nil:
		return verdicts.BlameHarness
	case c.isUnclear(wrong):
		return verdicts.BlameEnvironment
	case !c.contradicts(wrong):
		return verdicts.BlameAPIServer
	}
	return verdicts.BlameHarness
}

// isOverloaded reports whether the reference could not keep a rate either.
func (c controls) isOverloaded(check string) bool {
	r, ok := c.rates[check]
	if !ok {
		return false
	}
	return r.Inconclusive || len(r.problems()) > 0
}

// isUnclear reports whether nothing can be said about the answer of the reference either.
func (c controls) isUnclear(a Answer) bool {
	j, err := c.plan.judgeObservation(a)
	return err != nil || j.unclear
}

// contradicts reports whether the reference itself decided otherwise than expected, so that its decision is not what
// the policy says.
func (c controls) contradicts(a Answer) bool {
	if a.Check == revocation {
		// When the webhook is asked directly, only the reference itself can have answered.
		return a.Vector == "revoked/"+wayWebhook || a.Vector == "granted/"+wayWebhook
	}
	check := c.plan.clusterChecks()[a.Vector]
	if check.Scenario != nil {
		return verdicts.Judge(check.Scenario, a.ClusterObservation.Scenario).Blame == verdicts.BlameAuthorizer
	}
	isUp := check.Phase == phaseUp || check.Phase == phaseRepeated
	if !isUp || check.Reason == reasonHidesAuthorizers {
		return false
	}
	return c.plan.Policy.Decide(check.Spec) != check.Expect
}

// blameForRate returns whose fault it is that a rate was not kept. It is the environment's if the reference could not
// keep the rate either.
func (c controls) blameForRate(r Rate, reason string) verdicts.Blame {
	control, ok := c.rates[r.check()]
	if !ok {
		return ""
	}
	if reason == memoryGrows { // the memory is that of the authorizer's own process
		return verdicts.BlameAuthorizer
	}
	sameProblem := slices.ContainsFunc(control.problems(), func(p problem) bool { return p.reason == reason })
	slowAsWell := reason == slowsDown && len(r.P99s) > 0 && control.P99 > 2*r.P99s[0]+slowdownMillis
	hasProblem := sameProblem || slowAsWell
	if hasProblem || control.Inconclusive {
		return verdicts.BlameEnvironment
	}
	return verdicts.BlameAuthorizer
}
