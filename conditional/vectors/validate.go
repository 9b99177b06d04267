package vectors

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

const (
	// MaxCondition is the KEP's limit of a condition, in bytes.
	MaxCondition = 1024
	// MaxConditions is MaxConditionsPerMap of k8s.io/apiserver's pkg/authorization/authorizer in 1.37; the KEP
	// leaves the number open.
	MaxConditions = 128
	// reserved begins the IDs that no user may give (section "Condition and ConditionSet data model").
	reserved = "k8s.io/"
)

// ValidateID checks the ID of a condition: a label key outside k8s.io/.
func ValidateID(id string) error {
	if wrong := content.IsLabelKey(id); len(wrong) > 0 {
		return fmt.Errorf("condition ID %q: %s", id, strings.Join(wrong, "; "))
	}
	if strings.HasPrefix(id, reserved) {
		return fmt.Errorf("condition ID %q: the prefix %s is reserved", id, reserved)
	}
	return nil
}

// Breach is a rule of the KEP that an answer breaks, and how. Certifications keep both, and are judged again: their
// wording stays. The Reason is empty where certification does not ask.
type Breach struct{ Reason, Text string }

// Breaches are all rules that something breaks.
type Breaches []Breach

func (b *Breaches) when(is bool, reason, format string, args ...any) {
	if is {
		*b = append(*b, Breach{reason, fmt.Sprintf(format, args...)})
	}
}

// err is the first breach.
func (b Breaches) err() error {
	if len(b) == 0 {
		return nil
	}
	return errors.New(strings.TrimPrefix(b[0].Reason+": "+b[0].Text, ": "))
}

// Breaches are the rules that a status breaks. asked is the mode that the client asked for.
func (s SubjectAccessReviewStatus) Breaches(asked Mode) (b Breaches) {
	chain := s.ConditionsChain
	b.when(s.Allowed && s.Denied, "allowed-and-denied", "allowed and denied at once")
	b.when(chain != nil && asked == None, "conditions-not-asked-for", "there is a conditionsChain")
	b.when(chain != nil && (s.Allowed || s.Denied), "allowed-beside-conditions", "conditionsChain beside allowed or denied")
	b.when(chain != nil && len(chain) == 0, "empty-chain", "a conditionsChain without sets")
	conditional := false
	for _, set := range chain {
		b.set(set)
		conditional = conditional || len(set.Conditions) > 0
	}
	b.when(len(chain) > 0 && !conditional, "", "a conditionsChain without conditions: the decision is concrete")
	return b
}

func (b *Breaches) set(s ConditionSet) {
	kinds := 0
	for _, is := range []bool{s.Allowed, s.Denied, len(s.Conditions) > 0} {
		if is {
			kinds++
		}
	}
	b.when(kinds != 1, "set-of-no-kind", "a set has %d of allowed, denied and conditions, want 1", kinds)
	b.when(s.AuthorizerName == "", "no-authorizer-name", "a set has no authorizerName")
	b.when(len(s.Conditions) > MaxConditions, "too-many-conditions", "%d conditions", len(s.Conditions))
	b.when(len(s.Conditions) > 0 && s.FailureMode != FailDeny && s.FailureMode != FailNoOpinion, "", "failureMode %q: expected %s or %s", s.FailureMode, FailDeny, FailNoOpinion)
	seen := map[string]bool{}
	for _, c := range s.Conditions {
		b.when(seen[c.ID], "duplicate-ids", "the ID %.80q twice", c.ID)
		seen[c.ID] = true
		b.when(ValidateID(c.ID) != nil, "invalid-id", "the ID %.80q", c.ID)
		b.when(!slices.Contains(Effects(), c.Effect), "unknown-effect", "the effect %.80q", c.Effect)
		b.when(len(content.IsLabelKey(c.Type)) > 0, "invalid-type", "the type %.80q is no label key", c.Type)
		b.when(len(c.Condition) > MaxCondition, "condition-too-long", "a condition of %d bytes", len(c.Condition))
		b.when(c.Condition == "", "", "the condition %.80q is empty", c.ID)
	}
}

// Validate is the first rule that a status breaks.
func (s SubjectAccessReviewStatus) Validate(asked Mode) error { return s.Breaches(asked).err() }

// Validate is the first rule that a set breaks.
func (s ConditionSet) Validate() error {
	var b Breaches
	b.set(s)
	return b.err()
}
