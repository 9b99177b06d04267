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
	// MaxConditions is the value of MaxConditionsPerMap in k8s.io/apiserver's pkg/authorization/authorizer in 1.37. The
	// KEP leaves the number open.
	MaxConditions = 128
	// reserved is the prefix of the IDs that no user may give (section "Condition and ConditionSet data model").
	reserved = "k8s.io/"
)

// ValidateID checks that the ID of a condition is a label key outside k8s.io/.
func ValidateID(id string) error {
	if wrong := content.IsLabelKey(id); len(wrong) > 0 {
		return fmt.Errorf("condition ID %q: %s", id, strings.Join(wrong, "; "))
	}
	if strings.HasPrefix(id, reserved) {
		return fmt.Errorf("condition ID %q: the prefix %s is reserved", id, reserved)
	}
	return nil
}

// Breach is a breach of a rule of the KEP by an answer. Text says how the rule is broken. Records of certifications
// contain both, and are judged again later, so their wording must not change. The Reason is empty if certification does
// not use the rule.
type Breach struct{ Reason, Text string }

// Breaches are all breaches of rules by an answer.
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

// Rules are the rules for answers in a revision of the wire, in addition to the rules that all revisions have.
type Rules struct {
	// Chain is the name of the field of a status that has the sets. Sent is the name of that field of a request.
	Chain, Sent string
	// Condition is the largest number of bytes of a condition, Conditions is the largest number of conditions of a set,
	// and Depth is the largest depth of nested sets: 1 if sets cannot be nested.
	Condition, Conditions, Depth int
	// Description is the largest number of bytes of a description, or 0 if the text has no limit.
	Description int
	// Qualified is set if IDs and types must begin with a domain, and the names of authorizers must be DNS names.
	Qualified bool
	// Optional is set if a condition needs neither a type nor a text.
	Optional bool
	// Union is set if a conditional answer is one decision: a set without a name, or a union of named decisions. Then
	// no set has a failure mode, a decision in a union may be no opinion, and a conditional answer has none of the
	// fields of a concrete answer.
	Union bool
	// Staged is set if conditions may evaluate to conditions when more is known, but not everything.
	Staged bool
}

// Breaches returns the rules that a status breaks. mode is the one that the client asked for.
func (r Rules) Breaches(s SubjectAccessReviewStatus, mode Mode) (b Breaches) {
	chain, isConcrete := s.ConditionsChain, s.Allowed || s.Denied
	b.when(s.Allowed && s.Denied, "allowed-and-denied", "allowed and denied at once")
	b.when(chain != nil && mode == None, "conditions-not-asked-for", "there is a %s", r.Chain)
	b.when(chain != nil && isConcrete, "allowed-beside-conditions", "%s beside allowed or denied", r.Chain)
	b.when(chain != nil && len(chain) == 0, "empty-chain", "a %s without sets", r.Chain)
	isExplained := s.Reason != "" || s.EvaluationError != ""
	b.when(r.Union && chain != nil && isExplained, "reason-beside-conditions", "%s beside a reason or an evaluationError", r.Chain)
	if r.isAlone(chain) {
		r.decision(&b, chain[0])
	} else {
		r.chain(&b, chain, 1)
	}
	isConditional := slices.ContainsFunc(Leaves(chain), func(set ConditionSet) bool { return len(set.Conditions) > 0 })
	reason := ""
	if r.Union {
		reason = "concrete-chain"
	}
	b.when(len(chain) > 0 && !isConditional, reason, "a %s without conditions: the decision is concrete", r.Chain)
	return b
}

// isAlone reports whether a chain is one set without a name, which means that there is no union.
func (r Rules) isAlone(chain []ConditionSet) bool {
	return r.Union && len(chain) == 1 && chain[0].AuthorizerName == ""
}

// chain checks the sets of a chain.
func (r Rules) chain(b *Breaches, chain []ConditionSet, depth int) {
	names := map[string]bool{}
	for _, set := range chain {
		b.when(names[set.AuthorizerName], "duplicate-authorizers", "the authorizer %.80q twice", set.AuthorizerName)
		names[set.AuthorizerName] = true
		r.set(b, set, depth)
	}
}

// set checks one set of a chain.
func (r Rules) set(b *Breaches, s ConditionSet, depth int) {
	if depth > r.Depth {
		b.when(true, "nested-too-deep", "sets are nested more than %d deep", r.Depth)
		return
	}
	r.chain(b, s.ConditionsChain, depth+1)
	b.when(s.AuthorizerName == "", "no-authorizer-name", "a set has no authorizerName")
	isMalformed := s.AuthorizerName != "" && len(content.IsDNS1123Subdomain(s.AuthorizerName)) > 0
	b.when(r.Qualified && isMalformed, "invalid-authorizer-name", "the authorizerName %.80q is not a DNS name", s.AuthorizerName)
	r.decision(b, s)
}

// decision checks the decision of a set.
func (r Rules) decision(b *Breaches, s ConditionSet) {
	kinds := seq.Count([]bool{s.Allowed, s.Denied, len(s.Conditions) > 0, len(s.ConditionsChain) > 0}, func(is bool) bool { return is })
	isNoOpinion := r.Union && kinds == 0 && s.Conditions == nil && s.ConditionsChain == nil
	b.when(kinds != 1 && !isNoOpinion, "set-of-no-kind", "a set has %d of allowed, denied and conditions, want 1", kinds)
	b.when(len(s.Conditions) > r.Conditions, "too-many-conditions", "%d conditions", len(s.Conditions))
	isMode := s.FailureMode == FailDeny || s.FailureMode == FailNoOpinion
	b.when(len(s.Conditions) > 0 && !isMode && !r.Union, "", "failureMode %q: expected %s or %s", s.FailureMode, FailDeny, FailNoOpinion)
	decides := slices.ContainsFunc(s.Conditions, func(c Condition) bool { return c.Effect != NoOpinion })
	b.when(
		r.Union && len(s.Conditions) > 0 && !decides,
		"no-effect",
		"all conditions are of the effect NoOpinion: the decision is concrete",
	)
	seen := map[string]bool{}
	for _, c := range s.Conditions {
		b.when(seen[c.ID], "duplicate-ids", "the ID %.80q twice", c.ID)
		seen[c.ID] = true
		r.condition(b, c)
	}
}

// condition checks one condition by itself.
func (r Rules) condition(b *Breaches, c Condition) {
	b.when(r.validateID(c.ID) != nil, "invalid-id", "the ID %.80q", c.ID)
	b.when(!slices.Contains(Effects(), c.Effect), "unknown-effect", "the effect %.80q", c.Effect)
	r.kind(b, c.Type)
	b.when(len(c.Condition) > r.Condition, "condition-too-long", "a condition of %d bytes", len(c.Condition))
	b.when(c.Condition == "" && !r.Optional, "", "the condition %.80q is empty", c.ID)
	isLong := r.Description > 0 && len(c.Description) > r.Description
	b.when(isLong, "description-too-long", "a description of %d bytes", len(c.Description))
}

// kind checks the type of a condition.
func (r Rules) kind(b *Breaches, name string) {
	if name == "" && r.Optional {
		return
	}
	isKey, isQualified := len(content.IsLabelKey(name)) == 0, len(content.IsPrefixedLabelKey(name)) == 0
	b.when(!isKey, "invalid-type", "the type %.80q is no label key", name)
	b.when(isKey && r.Qualified && !isQualified, "invalid-type", "the type %.80q has no domain", name)
}

// validateID checks the ID of a condition. If IDs must begin with a domain, more domains are reserved.
func (r Rules) validateID(id string) error {
	if err := ValidateID(id); err != nil || !r.Qualified {
		return err
	}
	if wrong := content.IsPrefixedLabelKey(id); len(wrong) > 0 {
		return fmt.Errorf("condition ID %q: %s", id, strings.Join(wrong, "; "))
	}
	domain, _, _ := strings.Cut("."+id, "/")
	if strings.HasSuffix(domain, ".k8s.io") || strings.HasSuffix(domain, ".kubernetes.io") {
		return fmt.Errorf("condition ID %q: its domain is reserved", id)
	}
	return nil
}

// Validate returns the first rule that a status breaks.
func (r Rules) Validate(s SubjectAccessReviewStatus, mode Mode) error {
	return r.Breaches(s, mode).err()
}

// ValidateSet returns the first rule that a set breaks.
func (r Rules) ValidateSet(s ConditionSet) error {
	var b Breaches
	if r.isAlone([]ConditionSet{s}) {
		r.decision(&b, s)
	} else {
		r.set(&b, s, 1)
	}
	return b.err()
}
