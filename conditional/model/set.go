package model

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/authzconf/authzconf/conditional/vectors"
)

// Evaluate is what a set of conditions comes to, each of which is known to be true,
// false or an error, and whether there is an error to report ("Computing a concrete
// decision from a ConditionSet").
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

// CheckConditions says what is wrong with the conditions of one set: IDs and types
// that are no label keys, IDs that are reserved or there twice, unknown effects,
// and conditions that are too long.
func CheckConditions(all []vectors.Condition) (wrong []string) {
	seen := map[string]bool{}
	for _, c := range all {
		note := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("condition %.80q: ", c.ID)+fmt.Sprintf(format, args...))
		}
		if errs := content.IsLabelKey(c.ID); len(errs) > 0 {
			note("the ID is no label key: %s", strings.Join(errs, "; "))
		}
		if strings.HasPrefix(c.ID, "k8s.io/") {
			note("the ID has the prefix k8s.io/, which is reserved")
		}
		if seen[c.ID] {
			note("the ID is there twice")
		}
		seen[c.ID] = true
		if errs := content.IsLabelKey(c.Type); len(errs) > 0 {
			note("the type %.80q is no label key: %s", c.Type, strings.Join(errs, "; "))
		}
		switch c.Effect {
		case vectors.Allow, vectors.Deny, vectors.NoOpinion:
		default:
			note("the effect %.80q is none of Allow, Deny and NoOpinion", c.Effect)
		}
		if n := len(c.Condition); n > vectors.MaxCondition {
			note("the condition has %d bytes, more than %d", n, vectors.MaxCondition)
		}
	}
	return wrong
}

// CheckStatus says what is wrong with the answer to a SubjectAccessReview that asked
// for conditions in a mode ("Changes to (Self)SubjectAccessReview").
func CheckStatus(s *vectors.SubjectAccessReviewStatus, mode vectors.Mode) (wrong []string) {
	if s.Allowed && s.Denied {
		wrong = append(wrong, "allowed and denied are both true")
	}
	if s.ConditionsChain == nil {
		return wrong
	}
	if mode == vectors.None {
		wrong = append(wrong, "there is a conditionsChain, although no conditions were asked for")
	}
	if s.Allowed || s.Denied {
		wrong = append(wrong, "there is a conditionsChain beside allowed or denied")
	}
	for i, set := range s.ConditionsChain {
		kinds := 0
		for _, there := range []bool{set.Allowed, set.Denied, len(set.Conditions) > 0} {
			if there {
				kinds++
			}
		}
		if kinds != 1 {
			wrong = append(wrong, fmt.Sprintf("set %d has %d of allowed, denied and conditions, which exclude each other", i, kinds))
		}
		for _, w := range CheckConditions(set.Conditions) {
			wrong = append(wrong, fmt.Sprintf("set %d: %s", i, w))
		}
	}
	return wrong
}
