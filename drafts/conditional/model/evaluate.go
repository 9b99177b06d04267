package model

import (
	"github.com/authzconf/authzconf/drafts/conditional/vectors"
)

// Evaluate returns the decision that follows from a set of conditions, given whether each condition is true, false or
// an error. It also reports whether there is an error to report ("Computing a concrete decision from a ConditionSet").
func Evaluate(mode vectors.FailureMode, effects []vectors.Decision, truths []vectors.Truth) (vectors.Decision, bool) {
	has := func(e vectors.Decision, t vectors.Truth) bool {
		for i := range effects {
			if effects[i] == e && truths[i] == t {
				return true
			}
		}
		return false
	}
	for _, effect := range vectors.Effects() { // the strongest first
		switch {
		case has(effect, vectors.True):
			return effect, false
		case effect == vectors.Deny && has(effect, vectors.Error):
			return failedAs(mode), true
		case effect == vectors.NoOpinion && has(effect, vectors.Error):
			return vectors.NoOpinion, true
		}
	}
	return vectors.NoOpinion, false
}

// failedAs returns the decision that an error counts as.
func failedAs(mode vectors.FailureMode) vectors.Decision {
	if mode == vectors.FailNoOpinion {
		return vectors.NoOpinion
	}
	return vectors.Deny
}
