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

// Validate says what is wrong with a status by the rules of the KEP. asked is the mode that the client asked for.
func (s SubjectAccessReviewStatus) Validate(asked Mode) error {
	switch {
	case s.Allowed && s.Denied:
		return errors.New("status: allowed and denied at once")
	case s.ConditionsChain == nil:
		return nil
	case asked == None:
		return errors.New("status: conditions for a client that did not ask for any")
	case s.Allowed || s.Denied:
		return errors.New("status: conditionsChain beside allowed or denied")
	case len(s.ConditionsChain) == 0:
		return errors.New("status: an empty conditionsChain")
	}
	conditional := false
	for i, set := range s.ConditionsChain {
		if err := set.Validate(); err != nil {
			return fmt.Errorf("conditionsChain[%d]: %w", i, err)
		}
		conditional = conditional || len(set.Conditions) > 0
	}
	if !conditional {
		return errors.New("status: a conditionsChain without conditions: the decision is concrete")
	}
	return nil
}

// Validate says what is wrong with a set.
func (s ConditionSet) Validate() error {
	kinds := 0
	for _, is := range []bool{s.Allowed, s.Denied, len(s.Conditions) > 0} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return fmt.Errorf("%d of allowed, denied and conditions, which exclude each other", kinds)
	case s.AuthorizerName == "":
		return errors.New("authorizerName is missing")
	case len(s.Conditions) > MaxConditions:
		return fmt.Errorf("%d conditions, at most %d", len(s.Conditions), MaxConditions)
	case len(s.Conditions) > 0 && s.FailureMode != FailDeny && s.FailureMode != FailNoOpinion:
		return fmt.Errorf("failureMode %q: expected %s or %s", s.FailureMode, FailDeny, FailNoOpinion)
	}
	return ValidateConditions(s.Conditions)
}

// ValidateConditions says what is wrong with the conditions of one set, however many there are.
func ValidateConditions(all []Condition) error {
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.ID] {
			return fmt.Errorf("condition ID %q twice", c.ID)
		}
		seen[c.ID] = true
		if err := c.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Validate says what is wrong with a condition.
func (c Condition) Validate() error {
	if err := ValidateID(c.ID); err != nil {
		return err
	}
	switch {
	case !slices.Contains(Effects(), c.Effect):
		return fmt.Errorf("condition %s: effect %q: expected Allow, Deny or NoOpinion", c.ID, c.Effect)
	case len(c.Condition) > MaxCondition:
		return fmt.Errorf("condition %s: %d bytes, at most %d", c.ID, len(c.Condition), MaxCondition)
	case c.Condition == "":
		return fmt.Errorf("condition %s: it is empty", c.ID)
	}
	if wrong := content.IsLabelKey(c.Type); len(wrong) > 0 {
		return fmt.Errorf("condition %s: type %q: %s", c.ID, c.Type, strings.Join(wrong, "; "))
	}
	return nil
}
