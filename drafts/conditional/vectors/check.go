package vectors

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
)

// checker keeps the first rule of the format that a file breaks.
type checker struct {
	file *scenarios.Document
	err  error
}

// must records that the node at path breaks a rule, unless ok.
func (c *checker) must(ok bool, path, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("%s: %s", c.file.At(path), fmt.Sprintf(format, args...))
	}
}

func oneOf[T ~string](c *checker, path string, value T, words ...T) {
	c.must(slices.Contains(words, value), path, "%q is unknown (expected one of %s)", value, join(words))
}

func join[T ~string](words []T) string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		if w != "" {
			out = append(out, string(w))
		}
	}
	return strings.Join(out, ", ")
}

func (c *checker) vector(v *Vector) {
	c.must(v.Description != "", "$", "the description is missing (expected a sentence)")
	c.must(v.Source.Document != "" && v.Source.Section != "", "$.source", "the source is not complete (expected document and section)")
	oneOf(c, "$.level", v.Level, Must, Should)
	kinds := seq.Count([]bool{v.APIServer != nil, v.Webhook != nil, v.Table != nil}, func(there bool) bool { return there })
	c.must(kinds == 1, "$", "the file has %d of apiServer, webhook and table (expected one)", kinds)
	if c.err != nil {
		return
	}
	switch {
	case v.APIServer != nil:
		c.apiServer(v.APIServer, "$.apiServer")
	case v.Webhook != nil:
		c.webhook(v.Webhook)
	default:
		c.table(v.Table)
	}
}

func (c *checker) table(t *Table) {
	for word, a := range t.Authorizers {
		c.authorizer(&a, "$.table.authorizers."+word, 1)
		c.must(a.Name == "", "$.table.authorizers."+word, "the authorizer has a name (expected none: in a row it is a0, a1 and so on)")
	}
	c.must(len(t.Rows) > 0, "$.table", "there are no rows (expected chains)")
	seen := map[string]bool{}
	for i, row := range t.Rows {
		path := fmt.Sprintf("$.table.rows[%d]", i)
		words := strings.Fields(row.Chain)
		for _, word := range append(words, strings.Fields(row.Compound)...) {
			_, known := t.Authorizers[word]
			c.must(known, path+".chain", "%q is not a word of authorizers", word)
		}
		key := strings.TrimSuffix(strings.Join(words, " ")+" then "+row.Compound, " then ")
		c.must(!seen[key], path, "the chain %q is there twice", key)
		seen[key] = true
	}
}

func (c *checker) apiServer(m *APIServer, path string) {
	oneOf(c, path+".server.version", m.Server.Version, "", "new", "old")
	oneOf(c, path+".server.gate", m.Server.Gate, "", "on", "off", "rolledBack")
	oneOf(c, path+".server.plugin", m.Server.Plugin, "", "on", "off")
	oneOf(c, path+".request.served", m.Request.Served, "", "self", "aggregated", "nobody")
	oneOf(c, path+".request.mode", m.Request.Mode, "", "None", string(Optimized), string(HumanReadable))
	c.must(m.Objects >= 0 && m.Objects <= 100, path+".objects", "objects is %d (expected 1 to 100)", m.Objects)
	if c.err != nil {
		return
	}
	c.chain(m.Chain, path+".chain", max(m.Objects, 1))
	c.chain(m.Compound, path+".compound", max(m.Objects, 1))
	c.want(&m.Want, path+".want")
	if m.Eager != nil {
		c.want(m.Eager, path+".eager")
	}
	c.must(!reflect.ValueOf(m.Want).IsZero(), path+".want", "nothing is wanted (expected what the chain results in)")
}

func (c *checker) chain(chain []Authorizer, path string, objects int) {
	c.must(len(chain) <= 16, path, "the chain has %d authorizers (expected at most 16)", len(chain))
	names := map[string]bool{}
	for i := range chain {
		at := fmt.Sprintf("%s[%d]", path, i)
		name := cmp.Or(chain[i].Name, fmt.Sprintf("a%d", i))
		c.must(!names[name], at, "the name %q is there twice", name)
		names[name] = true
		c.authorizer(&chain[i], at, objects)
	}
}

func (c *checker) authorizer(a *Authorizer, path string, objects int) {
	oneOf(c, path+".failureMode", a.FailureMode, "", FailDeny, FailNoOpinion)
	if a.Status != nil {
		c.must(a.Decision == "" && len(a.Conditions) == 0, path, "the authorizer has a status and more (expected decision and conditions left out)")
	} else {
		oneOf(c, path+".decision", a.Decision, Allow, Deny, NoOpinion, Conditional)
		c.must(len(a.Conditions) == 0 || a.Decision == Conditional, path, "there are conditions for %s (expected them for Conditional only)", a.Decision)
	}
	c.must(!a.Empty || a.Decision == Deny, path, "the empty decision is %s (expected Deny)", a.Decision)
	for id, truth := range a.Truths {
		oneOf(c, path+".truths."+id, truth, True, False, Error)
	}
	for i, cond := range a.Conditions {
		at := fmt.Sprintf("%s.conditions[%d]", path, i)
		c.must(cond.Length >= 0 && cond.Length <= 1<<16 && cond.Repeat >= 0 && cond.Repeat <= 1024, at, "length or repeat is out of range (expected at most 65536 and 1024)")
		oneOf(c, at+".builtin", cond.Builtin, "", True, False, Error)
		if len(cond.PerObject) == 0 {
			oneOf(c, at+".is", cond.Is, True, False, Error)
			continue
		}
		c.must(cond.Is == "" && len(cond.PerObject) == objects, at+".perObject", "there are %d truths (expected one for each of %d objects, and no is)", len(cond.PerObject), objects)
		for _, truth := range cond.PerObject {
			oneOf(c, at+".perObject", truth, True, False, Error)
		}
	}
}

func (c *checker) want(w *Want, path string) {
	oneOf(c, path+".authorized", w.Authorized, "", Allow, Deny, NoOpinion, ConditionalAllow, ConditionalDeny)
	for _, d := range append([]Decision{w.Decision}, w.Decisions...) {
		oneOf(c, path, d, "", Allow, Deny, NoOpinion)
	}
	for _, s := range w.ConditionsChain {
		words := strings.Fields(s)
		c.must(len(words) == 2 && slices.Contains([]string{"conditions", "allowed", "denied"}, words[1]), path+".conditionsChain",
			"%q is not a set (expected a name, and conditions, allowed or denied)", s)
	}
}

func (c *checker) webhook(w *Webhook) {
	c.policies(w.Policies, "$.webhook.policies")
	oneOf(c, "$.webhook.failureMode", w.FailureMode, "", FailDeny, FailNoOpinion)
	c.must(len(w.Steps) > 0, "$.webhook", "there are no steps (expected at least one)")
	for i, s := range w.Steps {
		path := fmt.Sprintf("$.webhook.steps[%d]", i)
		switch {
		case s.Authorize != nil && s.Evaluate == nil && s.SetPolicies == nil:
			oneOf(c, path+".authorize.spec.conditionalAuthorization.mode", s.Authorize.Spec.Mode(), None, HumanReadable, Optimized)
			spec := s.Authorize.Spec
			c.must((spec.ResourceAttributes != nil) != (spec.NonResourceAttributes != nil), path+".authorize.spec", "the spec has both or neither of resourceAttributes and nonResourceAttributes (expected one)")
			c.decisions(s.Authorize.Want.OneOf, path+".authorize.want", Allow, Deny, NoOpinion, Conditional)
			for _, e := range s.Authorize.Want.Effects {
				oneOf(c, path+".authorize.want.effects", e, Allow, Deny, NoOpinion)
			}
		case s.Evaluate != nil && s.Authorize == nil && s.SetPolicies == nil:
			of := s.Evaluate.Of
			c.must(of >= 0 && of < i && w.Steps[of].Authorize != nil, path+".evaluate", "of is %d (expected the index of an authorize step before this one)", of)
			oneOf(c, path+".evaluate.data.operation", s.Evaluate.Data.Operation, "", "CREATE", "UPDATE", "DELETE", "CONNECT")
			c.decisions(s.Evaluate.Want.OneOf, path+".evaluate.want", Allow, Deny, NoOpinion)
		case s.SetPolicies != nil && s.Authorize == nil && s.Evaluate == nil:
			c.policies(s.SetPolicies, path+".setPolicies")
		default:
			c.must(false, path, "the step must have exactly one of authorize, evaluate and setPolicies")
		}
	}
}

func (c *checker) policies(all []Policy, path string) {
	ids := map[string]bool{}
	for i, p := range all {
		at := fmt.Sprintf("%s[%d]", path, i)
		c.must(p.ID != "" && p.Expression != "", at, "the policy is not complete (expected id, effect and expression)")
		c.must(!ids[p.ID], at, "the ID %q is there twice", p.ID)
		ids[p.ID] = true
		oneOf(c, at+".effect", p.Effect, Allow, Deny, NoOpinion)
	}
}

func (c *checker) decisions(all []Decision, path string, words ...Decision) {
	c.must(len(all) > 0, path, "oneOf is missing (expected at least one decision)")
	for _, d := range all {
		oneOf(c, path+".oneOf", d, words...)
	}
}

// Webhook is a conversation with an authorizer that has loaded policies.
type Webhook struct {
	Policies []Policy `json:"policies" yaml:"policies"` // those of the authorizer, as the KEP writes them
	// FailureMode is what a Deny policy in error counts as, where an authorizer can be told. Left out: Deny.
	FailureMode FailureMode `json:"failureMode,omitempty" yaml:"failureMode,omitempty"`
	// Steps follow one another.
	Steps []Step `json:"steps" yaml:"steps"`
}

// Policy is an effect of "Authorizer requirements" and when it applies: Deny (hard deny), NoOpinion (soft deny), Allow.
//
// The expression is CEL. It has the variables
//
//	request              what is known when the request is authorized: verb, apiGroup,
//	                     apiVersion, resource, subresource, namespace, name, path, and
//	                     userInfo with username, uid, groups and extra
//	operation, options, object, oldObject, namespaceObject, impersonatedRequest
//	                     what is known later; null where there is none
//	                     (impersonatedRequest has the fields of request but path)
//
// All of request's fields are there always, empty where the review has none.
type Policy struct {
	// ID may become the ID of a condition.
	ID          string   `json:"id" yaml:"id"`
	Effect      Decision `json:"effect" yaml:"effect"`
	Expression  string   `json:"expression" yaml:"expression"`
	Description string   `json:"description,omitempty" yaml:"description,omitempty"` // for people
}

// Step is one of three things.
type Step struct {
	// Authorize sends a SubjectAccessReview.
	Authorize *AuthorizeStep `json:"authorize,omitempty" yaml:"authorize,omitempty"`
	// Evaluate sends an AuthorizationConditionsReview.
	Evaluate *EvaluateStep `json:"evaluate,omitempty" yaml:"evaluate,omitempty"`
	// SetPolicies changes what the authorizer has loaded.
	SetPolicies []Policy `json:"setPolicies,omitempty" yaml:"setPolicies,omitempty"`
}

// AuthorizeStep is the first phase.
type AuthorizeStep struct {
	Spec SubjectAccessReviewSpec `json:"spec" yaml:"spec"`
	Want AuthorizeWant           `json:"want" yaml:"want"`
}

// AuthorizeWant is what the answer to a SubjectAccessReview is. Whatever it is, it must keep the rules of its fields.
type AuthorizeWant struct {
	// OneOf are the right decisions: Allow, Deny, NoOpinion, Conditional. Mostly it is one. The text recommends the first.
	OneOf []Decision `json:"oneOf" yaml:"oneOf"`
	// Effects are those that the conditions have, each once, in any order.
	Effects []Decision `json:"effects,omitempty" yaml:"effects,omitempty"`
	// Residuals are the conditions in CEL, in any order, judged as expressions and only of authorizers that answer in CEL.
	Residuals []string `json:"residuals,omitempty" yaml:"residuals,omitempty"`
	// Error says whether an evaluationError is there.
	Error *bool `json:"error,omitempty" yaml:"error,omitempty"`
}

// EvaluateStep is the second phase.
type EvaluateStep struct {
	// Of is the index of the authorize step whose conditions are sent back, as they were answered. If that answer
	// was not conditional the step asks nothing: the decision stands.
	Of   int           `json:"of" yaml:"of"`
	Data ConditionData `json:"data" yaml:"data"`
	Want EvaluateWant  `json:"want" yaml:"want"`
}

// EvaluateWant is what the answer to an AuthorizationConditionsReview is.
type EvaluateWant struct {
	OneOf []Decision `json:"oneOf" yaml:"oneOf"`
	Error *bool      `json:"error,omitempty" yaml:"error,omitempty"`
}

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

// Breaches are the rules that a status breaks. asked is the mode that the client asked for.
func (r Rules) Breaches(s SubjectAccessReviewStatus, asked Mode) (b Breaches) {
	chain := s.ConditionsChain
	b.when(s.Allowed && s.Denied, "allowed-and-denied", "allowed and denied at once")
	b.when(chain != nil && asked == None, "conditions-not-asked-for", "there is a %s", r.Chain)
	b.when(chain != nil && (s.Allowed || s.Denied), "allowed-beside-conditions", "%s beside allowed or denied", r.Chain)
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
	b.when(len(s.Conditions) > 0 && s.FailureMode != FailDeny && s.FailureMode != FailNoOpinion, "", "failureMode %q: expected %s or %s", s.FailureMode, FailDeny, FailNoOpinion)
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

// Validate is the first rule that a status breaks.
func (r Rules) Validate(s SubjectAccessReviewStatus, asked Mode) error {
	return r.Breaches(s, asked).err()
}

// ValidateSet is the first rule that a set breaks.
func (r Rules) ValidateSet(s ConditionSet) error {
	var b Breaches
	r.set(&b, s, 1)
	return b.err()
}
