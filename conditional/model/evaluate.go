package model

import "github.com/authzconf/authzconf/conditional/vectors"

// Evaluate is what a set of conditions amounts to, each of which is known to be true, false or an error, and
// whether there is an error to report ("Computing a concrete decision from a ConditionSet").
func Evaluate(mode vectors.FailureMode, effects []vectors.Decision, truths []vectors.Truth) (vectors.Decision, bool) {
	has := func(e vectors.Decision, t vectors.Truth) bool {
		for i := range effects {
			if effects[i] == e && truths[i] == t {
				return true
			}
		}
		return false
	}
	switch {
	case has(vectors.Deny, vectors.True):
		return vectors.Deny, false
	case has(vectors.Deny, vectors.Error):
		return failed(mode), true
	case has(vectors.NoOpinion, vectors.True):
		return vectors.NoOpinion, false
	case has(vectors.NoOpinion, vectors.Error):
		return vectors.NoOpinion, true
	case has(vectors.Allow, vectors.True):
		return vectors.Allow, false
	}
	return vectors.NoOpinion, false
}

// failed is the decision that an error counts as.
func failed(mode vectors.FailureMode) vectors.Decision {
	if mode == vectors.FailNoOpinion {
		return vectors.NoOpinion
	}
	return vectors.Deny
}
