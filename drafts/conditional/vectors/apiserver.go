package vectors

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/internal/seq"
)

// APIServer is a request, what the authorizers of a chain say to it, and what the API server makes of that.
type APIServer struct {
	// Server is the API server's configuration. Left out, a new one with feature gate and admission plugin.
	Server Server `json:"server,omitzero" yaml:"server,omitempty"`
	// Request is the request in the words of authorization. Left out, one that supports conditions: create configmaps.
	Request Request      `json:"request,omitzero" yaml:"request,omitempty"`
	Chain   []Authorizer `json:"chain" yaml:"chain"` // the authorizers in their order
	// Compound is a second check that the request has to pass, with the same authorizers under the same names and other
	// answers: of create when an update turns into one or for a connect request, of escalate for a ClusterRole, or the one
	// that a condition asks for by the function authorizer.
	Compound []Authorizer `json:"compound,omitempty" yaml:"compound,omitempty"`
	// Objects is how many objects admission sees in turn. By default one; deletecollection has all there are.
	Objects int `json:"objects,omitempty" yaml:"objects,omitempty"`

	Want Want `json:"want" yaml:"want"` // what the KEP says: the chain is read lazily
	// Eager is what differs if all are asked before admission: the KEP's alternative, and what aggregated API servers see.
	Eager *Want `json:"eager,omitempty" yaml:"eager,omitempty"`
}

// Server is the configuration of an API server.
type Server struct {
	// Version is new (knows the KEP) or old. Left out: new.
	Version string `json:"version,omitempty" yaml:"version,omitempty"`
	// Gate is ConditionalAuthorization, Plugin is AuthorizationConditionsEnforcer: on or off. Left out: on. A gate that is
	// rolledBack is off, and the configuration of the authorizers still that of a gate that is on.
	Gate   string `json:"gate,omitempty" yaml:"gate,omitempty"`
	Plugin string `json:"plugin,omitempty" yaml:"plugin,omitempty"`
	// BuiltinTypes are the condition types that the server evaluates in its own process.
	BuiltinTypes []string `json:"builtinTypes,omitempty" yaml:"builtinTypes,omitempty"`
}

// Request is what decides whether a request supports conditions.
type Request struct {
	Verb        string `json:"verb,omitempty" yaml:"verb,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty" yaml:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty" yaml:"apiVersion,omitempty"`
	Resource    string `json:"resource,omitempty" yaml:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty" yaml:"subresource,omitempty"`
	// Connect says that a Connect handler serves it.
	Connect bool `json:"connect,omitempty" yaml:"connect,omitempty"`
	// Served is by whom: self, aggregated, or nobody. Left out: self.
	Served string `json:"served,omitempty" yaml:"served,omitempty"`
	// Mode is what the caller asks for: Optimized, HumanReadable or None. Left out: Optimized.
	Mode string `json:"mode,omitempty" yaml:"mode,omitempty"`
}

// Authorizer is one link of a chain: what it answers, and later evaluates.
type Authorizer struct {
	// Name is unique within the chain. Left out, it is a0, a1 and so on.
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Decision is Allow, Deny, NoOpinion or Conditional; the last has Conditions.
	Decision Decision `json:"decision,omitempty" yaml:"decision,omitempty"`
	// Empty says that a Deny is the empty decision.
	Empty bool `json:"empty,omitempty" yaml:"empty,omitempty"`
	// Error says that an error comes with the decision, Reason which reason does.
	Error  bool   `json:"error,omitempty" yaml:"error,omitempty"`
	Reason string `json:"reason,omitempty" yaml:"reason,omitempty"`
	// FailureMode is Deny or NoOpinion. Left out: Deny.
	FailureMode FailureMode `json:"failureMode,omitempty" yaml:"failureMode,omitempty"`
	// Conditions are those of the ConditionSet, in the order of the answer.
	Conditions []EvaluatedCondition `json:"conditions,omitempty" yaml:"conditions,omitempty"`
	// Status is the answer of a webhook as it stands, instead of Decision and Conditions: for answers that break
	// the rules, or hold more than one set.
	Status *SubjectAccessReviewStatus `json:"status,omitempty" yaml:"status,omitempty"`
	// Truths are what conditions in Status evaluate to, by their ID.
	Truths map[string]Truth `json:"truths,omitempty" yaml:"truths,omitempty"`
	// Cached says that the answer comes from the API server's cache of a webhook's answers.
	Cached bool `json:"cached,omitempty" yaml:"cached,omitempty"`
	// Cannot says that the authorizer does not evaluate conditions (it is not a ConditionSetEvaluator).
	Cannot bool `json:"cannot,omitempty" yaml:"cannot,omitempty"`
}

// Answer is what the authorizer answers as a webhook.
func (a *Authorizer) Answer() SubjectAccessReviewStatus {
	switch {
	case a.Status != nil:
		return *a.Status
	case a.Decision != Conditional:
		return SubjectAccessReviewStatus{Allowed: a.Decision == Allow, Denied: a.Decision == Deny, Reason: a.Reason}
	}
	set := ConditionSet{AuthorizerName: a.Name, FailureMode: a.FailureMode}
	set.Conditions = append(set.Conditions, seq.Map(a.Conditions, func(c EvaluatedCondition) Condition { return c.Condition })...)
	return SubjectAccessReviewStatus{ConditionsChain: []ConditionSet{set}}
}

// EvaluatedCondition is a condition, and what it is known to evaluate to.
type EvaluatedCondition struct {
	Condition `yaml:",inline"`
	// Is is what it evaluates to. For each of several objects, PerObject.
	Is        Truth   `json:"is,omitempty" yaml:"is,omitempty"`
	PerObject []Truth `json:"perObject,omitempty" yaml:"perObject,omitempty"`
	// Builtin is what the API server's own evaluator makes of it, if that differs: an error, say, because it lacks a function that the authorizer has.
	Builtin Truth `json:"builtin,omitempty" yaml:"builtin,omitempty"`
	// Secondary says that the API server's evaluator finds it true if the check of Compound, without conditions, is allowed.
	Secondary bool `json:"secondary,omitempty" yaml:"secondary,omitempty"`
	// Length makes the text of the condition that many bytes long.
	Length int `json:"length,omitempty" yaml:"length,omitempty"`
	// Repeat makes that many conditions of it: their IDs end in -0, -1 and so on.
	Repeat int `json:"repeat,omitempty" yaml:"repeat,omitempty"`
}

// Want is what a request results in. What is left out is not judged; [] is none.
type Want struct {
	// Starts is false if an API server so configured must not start.
	Starts *bool `json:"starts,omitempty" yaml:"starts,omitempty"`
	// Authorized is the chain's decision before admission.
	Authorized Decision `json:"authorized,omitempty" yaml:"authorized,omitempty"`
	// Asked are the authorizers that were asked for it.
	Asked []string `json:"asked,omitempty" yaml:"asked,omitempty"`
	// Proceeds says whether the request gets past the authorization filter.
	Proceeds *bool `json:"proceeds,omitempty" yaml:"proceeds,omitempty"`
	// ConditionsChain is what a SubjectAccessReview of the same request shows: one word for each set, "name
	// conditions", "name allowed" or "name denied".
	ConditionsChain []string `json:"conditionsChain,omitempty" yaml:"conditionsChain,omitempty"`
	// AskedLater are the authorizers that are asked for a decision during admission.
	AskedLater []string `json:"askedLater,omitempty" yaml:"askedLater,omitempty"`
	// EvaluatedBy are the authorizers called to evaluate their conditions, in order: not for what the server evaluates.
	EvaluatedBy []string `json:"evaluatedBy,omitempty" yaml:"evaluatedBy,omitempty"`
	// Decision is the concrete one after the conditions are evaluated.
	Decision Decision `json:"decision,omitempty" yaml:"decision,omitempty"`
	// Decisions is that for each of several objects.
	Decisions []Decision `json:"decisions,omitempty" yaml:"decisions,omitempty"`
	// Reason are the words that the reason of the decision has in it, of those that could be: the reasons of
	// authorizers, and the IDs and descriptions of conditions.
	Reason []string `json:"reason,omitempty" yaml:"reason,omitempty"`
	// Error says whether an error is reported with the decision.
	Error *bool `json:"error,omitempty" yaml:"error,omitempty"`
	// Admitted says whether the request, with every check, goes through.
	Admitted *bool `json:"admitted,omitempty" yaml:"admitted,omitempty"`
}

// Table is many API-server vectors: chains, written as words.
type Table struct {
	// Server and Request are those of all rows.
	Server      Server                `json:"server,omitzero" yaml:"server,omitempty"`
	Request     Request               `json:"request,omitzero" yaml:"request,omitempty"`
	Authorizers map[string]Authorizer `json:"authorizers" yaml:"authorizers"` // the words
	Rows        []Row                 `json:"rows" yaml:"rows"`               // the chains
}

// Row is a chain of a Table and what it results in. The authorizers are named a0, a1 and so on.
type Row struct {
	Chain    string `json:"chain" yaml:"chain"` // words of Authorizers, separated by spaces, as is Compound
	Compound string `json:"compound,omitempty" yaml:"compound,omitempty"`
	Want     Want   `json:"want" yaml:"want"`
	Eager    *Want  `json:"eager,omitempty" yaml:"eager,omitempty"`
}

// Reading is when the authorizers behind a conditional allow are asked.
type Reading string

// The readings ("Computing a concrete decision from a conditional authorization chain"): Lazy asks them during
// admission, if at all; Eager asks all before.
const (
	Lazy  Reading = "lazy"
	Eager Reading = "eager"
)

// Wanted is what a reading says of the request: Eager states only what differs.
func (s *APIServer) Wanted(r Reading) Want {
	if r == Lazy || s.Eager == nil {
		return s.Want
	}
	return s.Want.But(*s.Eager)
}

// each calls do with the fields of two results, by their names.
func (w *Want) each(other *Want, do func(name string, mine, others reflect.Value)) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Want]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		do(name, reflect.ValueOf(w).Elem().FieldByIndex(f.Index), reflect.ValueOf(other).Elem().FieldByIndex(f.Index))
	}
}

// But is a result with the fields that another one states.
func (w Want) But(other Want) Want {
	w.each(&other, func(_ string, mine, others reflect.Value) {
		if !others.IsZero() {
			mine.Set(others)
		}
	})
	return w
}

// Stated is how many fields a result states that another one knows.
func (w *Want) Stated(got *Want) (n int) {
	w.each(got, func(_ string, a, b reflect.Value) {
		if !a.IsZero() && !b.IsZero() {
			n++
		}
	})
	return n
}

// Unknown are the fields that a result states, and another one does not know.
func (w *Want) Unknown(got *Want) (out []string) {
	w.each(got, func(name string, a, b reflect.Value) {
		if !a.IsZero() && b.IsZero() {
			out = append(out, name)
		}
	})
	return out
}

// Words are those that a reason can have in it, in the order of the chain.
func (s *APIServer) Words() (out []string) {
	for _, a := range s.Chain {
		out = append(out, a.Reason)
		for _, c := range a.Conditions {
			out = append(out, c.ID, c.Description)
		}
	}
	return slices.DeleteFunc(out, func(word string) bool { return word == "" })
}

// Differences says in which fields a result is not as wanted. What w leaves out, or got does not know, is not judged.
func (w *Want) Differences(got *Want) (out []string) {
	w.each(got, func(name string, a, b reflect.Value) {
		if !a.IsZero() && !b.IsZero() && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			out = append(out, fmt.Sprintf("%s: want %v, got %v", name, reflect.Indirect(a), reflect.Indirect(b)))
		}
	})
	return out
}
