package vectors

import (
	"slices"

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
	// Connect is set if a Connect handler serves it.
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
	// Empty is set if a Deny is the empty decision.
	Empty bool `json:"empty,omitempty" yaml:"empty,omitempty"`
	// Error is set if an error comes with the decision, Reason which reason does.
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
	// Cached is set if the answer comes from the API server's cache of a webhook's answers.
	Cached bool `json:"cached,omitempty" yaml:"cached,omitempty"`
	// Cannot is set if the authorizer does not evaluate conditions (it is not a ConditionSetEvaluator).
	Cannot bool `json:"cannot,omitempty" yaml:"cannot,omitempty"`
}

// Answer returns what the authorizer answers as a webhook.
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
	// Secondary is set if the API server's evaluator finds it true if the check of Compound, without conditions, is allowed.
	Secondary bool `json:"secondary,omitempty" yaml:"secondary,omitempty"`
	// Length makes the text of the condition that many bytes long.
	Length int `json:"length,omitempty" yaml:"length,omitempty"`
	// Repeat makes that many conditions of it: their IDs end in -0, -1 and so on.
	Repeat int `json:"repeat,omitempty" yaml:"repeat,omitempty"`
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

// Words returns those that a reason can have in it, in the order of the chain.
func (s *APIServer) Words() (out []string) {
	for _, a := range s.Chain {
		out = append(out, a.Reason)
		for _, c := range a.Conditions {
			out = append(out, c.ID, c.Description)
		}
	}
	return slices.DeleteFunc(out, func(word string) bool { return word == "" })
}
