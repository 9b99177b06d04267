package vectors

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/authzconf/authzconf/internal/seq"
)

const (
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

func (b Breaches) err() error {
	if len(b) == 0 {
		return nil
	}
	return errors.New(strings.TrimPrefix(b[0].Reason+": "+b[0].Text, ": "))
}

// Rules are what a revision of the wire demands of answers, beside what all demand.
type Rules struct {
	// Chain is the name of the field of a status with the sets, Sent that of a request.
	Chain, Sent string
	// Condition is how many bytes a condition may have, Conditions how many a set, Depth how deep sets nest, 1 if not.
	Condition, Conditions, Depth int
}

// Breaches returns the rules that a status breaks. asked is the mode that the client asked for.
func (r Rules) Breaches(s SubjectAccessReviewStatus, asked Mode) (b Breaches) {
	chain, isConcrete := s.ConditionsChain, s.Allowed || s.Denied
	b.when(s.Allowed && s.Denied, "allowed-and-denied", "allowed and denied at once")
	b.when(chain != nil && asked == None, "conditions-not-asked-for", "there is a %s", r.Chain)
	b.when(chain != nil && isConcrete, "allowed-beside-conditions", "%s beside allowed or denied", r.Chain)
	b.when(chain != nil && len(chain) == 0, "empty-chain", "a %s without sets", r.Chain)
	conditional := false
	for _, set := range chain {
		r.set(&b, set, 1)
	}
	for _, set := range Leaves(chain) {
		conditional = conditional || len(set.Conditions) > 0
	}
	b.when(len(chain) > 0 && !conditional, "", "a %s without conditions: the decision is concrete", r.Chain)
	return b
}

func (r Rules) set(b *Breaches, s ConditionSet, depth int) {
	if depth > r.Depth {
		b.when(true, "nested-too-deep", "sets are nested more than %d deep", r.Depth)
		return
	}
	for _, inner := range s.ConditionsChain {
		r.set(b, inner, depth+1)
	}
	kinds := seq.Count([]bool{s.Allowed, s.Denied, len(s.Conditions) > 0, len(s.ConditionsChain) > 0}, func(is bool) bool { return is })
	b.when(kinds != 1, "set-of-no-kind", "a set has %d of allowed, denied and conditions, want 1", kinds)
	b.when(s.AuthorizerName == "", "no-authorizer-name", "a set has no authorizerName")
	b.when(len(s.Conditions) > r.Conditions, "too-many-conditions", "%d conditions", len(s.Conditions))
	isMode := s.FailureMode == FailDeny || s.FailureMode == FailNoOpinion
	b.when(len(s.Conditions) > 0 && !isMode, "", "failureMode %q: expected %s or %s", s.FailureMode, FailDeny, FailNoOpinion)
	seen := map[string]bool{}
	for _, c := range s.Conditions {
		b.when(seen[c.ID], "duplicate-ids", "the ID %.80q twice", c.ID)
		seen[c.ID] = true
		b.when(ValidateID(c.ID) != nil, "invalid-id", "the ID %.80q", c.ID)
		b.when(!slices.Contains(Effects(), c.Effect), "unknown-effect", "the effect %.80q", c.Effect)
		b.when(len(content.IsLabelKey(c.Type)) > 0, "invalid-type", "the type %.80q is no label key", c.Type)
		b.when(len(c.Condition) > r.Condition, "condition-too-long", "a condition of %d bytes", len(c.Condition))
		b.when(c.Condition == "", "", "the condition %.80q is empty", c.ID)
	}
}

// Validate returns the first rule that a status breaks.
func (r Rules) Validate(s SubjectAccessReviewStatus, asked Mode) error {
	return r.Breaches(s, asked).err()
}

// ValidateSet returns the first rule that a set breaks.
func (r Rules) ValidateSet(s ConditionSet) error {
	var b Breaches
	r.set(&b, s, 1)
	return b.err()
}
