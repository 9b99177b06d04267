package vectors

import (
	"slices"

	"github.com/authzconf/authzconf/internal/seq"
)

// APIServer is a request, the answers of the authorizers in a chain, and the result of the request on an API server.
type APIServer struct {
	// Server is the API server's configuration. Left out, a new one with feature gate and admission plugin.
	Server Server `json:"server,omitzero" yaml:"server,omitempty"`
	// Request describes the request as authorization sees it. If it is left out, it is a request that supports
	// conditions: create configmaps.
	Request Request      `json:"request,omitzero" yaml:"request,omitempty"`
	Chain   []Authorizer `json:"chain" yaml:"chain"` // the authorizers in their order
	// Compound is a second check that the request has to pass. The authorizers have the same names and other answers.
	// The check is about create, if an update becomes a create or the request connects; or about escalate, for a
	// ClusterRole; or it is the check that a condition makes with the function authorizer.
	Compound []Authorizer `json:"compound,omitempty" yaml:"compound,omitempty"`
	// Objects is the number of objects that admission sees one after another. The default is one. Only deletecollection
	// can have more.
	Objects int `json:"objects,omitempty" yaml:"objects,omitempty"`

	Want Want `json:"want" yaml:"want"` // what the KEP says if the chain is read lazily
	// Eager has the differences if all authorizers are asked before admission. That is the KEP's alternative, and what
	// aggregated API servers see.
	Eager *Want `json:"eager,omitempty" yaml:"eager,omitempty"`
}

// Server is the configuration of an API server.
type Server struct {
	// Version is new (the API server knows the KEP) or old. If it is left out, it is new.
	Version string `json:"version,omitempty" yaml:"version,omitempty"`
	// Gate is the state of ConditionalAuthorization, and Plugin is the state of AuthorizationConditionsEnforcer: on or
	// off. If they are left out, they are on. The gate can also be rolledBack: then it is off, but the configuration of
	// the authorizers is still the one for a gate that is on.
	Gate   string `json:"gate,omitempty" yaml:"gate,omitempty"`
	Plugin string `json:"plugin,omitempty" yaml:"plugin,omitempty"`
	// BuiltinTypes are the condition types that the server evaluates in its own process.
	BuiltinTypes []string `json:"builtinTypes,omitempty" yaml:"builtinTypes,omitempty"`
}

// Request has the parts of a request that decide whether it supports conditions.
type Request struct {
	Verb        string `json:"verb,omitempty" yaml:"verb,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty" yaml:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty" yaml:"apiVersion,omitempty"`
	Resource    string `json:"resource,omitempty" yaml:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty" yaml:"subresource,omitempty"`
	// Connect is set if a Connect handler serves the request.
	Connect bool `json:"connect,omitempty" yaml:"connect,omitempty"`
	// Served says who serves the request: self, aggregated, or nobody. If it is left out, it is self.
	Served string `json:"served,omitempty" yaml:"served,omitempty"`
	// Mode is the mode that the caller asks for: Optimized, HumanReadable or None. If it is left out, it is Optimized.
	Mode string `json:"mode,omitempty" yaml:"mode,omitempty"`
}

// Authorizer is one authorizer of a chain: what it answers, and how it evaluates conditions later.
type Authorizer struct {
	// Name is unique within the chain. If it is left out, it is a0, a1 and so on.
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Decision is Allow, Deny, NoOpinion or Conditional. A Conditional decision has Conditions.
	Decision Decision `json:"decision,omitempty" yaml:"decision,omitempty"`
	// Empty is set if a Deny is the empty decision of the library.
	Empty bool `json:"empty,omitempty" yaml:"empty,omitempty"`
	// Error is set if an error comes with the decision. Reason is the reason that comes with it.
	Error  bool   `json:"error,omitempty" yaml:"error,omitempty"`
	Reason string `json:"reason,omitempty" yaml:"reason,omitempty"`
	// FailureMode is Deny or NoOpinion. If it is left out, it is Deny.
	FailureMode FailureMode `json:"failureMode,omitempty" yaml:"failureMode,omitempty"`
	// Conditions are the conditions of the ConditionSet, in the order of the answer.
	Conditions []EvaluatedCondition `json:"conditions,omitempty" yaml:"conditions,omitempty"`
	// Status is the whole answer of a webhook, instead of Decision and Conditions. It is for answers that break the
	// rules, or that have more than one set.
	Status *SubjectAccessReviewStatus `json:"status,omitempty" yaml:"status,omitempty"`
	// Truths are the truths of the conditions in Status, by their IDs.
	Truths map[string]Truth `json:"truths,omitempty" yaml:"truths,omitempty"`
	// Cached is set if the answer comes from the API server's cache of webhook answers.
	Cached bool `json:"cached,omitempty" yaml:"cached,omitempty"`
	// Cannot is set if the authorizer does not evaluate conditions (if it is not a ConditionSetEvaluator).
	Cannot bool `json:"cannot,omitempty" yaml:"cannot,omitempty"`
}

// Answer returns the answer of the authorizer as a webhook.
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

// EvaluatedCondition is a condition whose truth is given.
type EvaluatedCondition struct {
	Condition `yaml:",inline"`
	// Is is the truth of the condition. If there are several objects, PerObject has a truth for each.
	Is        Truth   `json:"is,omitempty" yaml:"is,omitempty"`
	PerObject []Truth `json:"perObject,omitempty" yaml:"perObject,omitempty"`
	// Builtin is the truth by the API server's own evaluator if it differs. It is an error, for example, if that
	// evaluator lacks a function that the authorizer has.
	Builtin Truth `json:"builtin,omitempty" yaml:"builtin,omitempty"`
	// Secondary is set if the API server's evaluator finds the condition true exactly if the check of Compound is
	// allowed without conditions.
	Secondary bool `json:"secondary,omitempty" yaml:"secondary,omitempty"`
	// Length replaces the text of the condition by a text of that many bytes.
	Length int `json:"length,omitempty" yaml:"length,omitempty"`
	// Repeat replaces the condition by that many conditions: their IDs end in -0, -1 and so on.
	Repeat int `json:"repeat,omitempty" yaml:"repeat,omitempty"`
}

// Table is a file with many API-server vectors: chains that are written as words.
type Table struct {
	// Server and Request apply to all rows.
	Server      Server                `json:"server,omitzero" yaml:"server,omitempty"`
	Request     Request               `json:"request,omitzero" yaml:"request,omitempty"`
	Authorizers map[string]Authorizer `json:"authorizers" yaml:"authorizers"` // the words
	Rows        []Row                 `json:"rows" yaml:"rows"`               // the chains
}

// Row is a chain of a Table and its result. The authorizers are named a0, a1 and so on.
type Row struct {
	Chain    string `json:"chain" yaml:"chain"` // words of Authorizers, separated by spaces; Compound is written in the same way
	Compound string `json:"compound,omitempty" yaml:"compound,omitempty"`
	Want     Want   `json:"want" yaml:"want"`
	Eager    *Want  `json:"eager,omitempty" yaml:"eager,omitempty"`
}

// Words returns the words that a reason can contain, in the order of the chain.
func (s *APIServer) Words() (out []string) {
	for _, a := range s.Chain {
		out = append(out, a.Reason)
		for _, c := range a.Conditions {
			out = append(out, c.ID, c.Description)
		}
	}
	return slices.DeleteFunc(out, func(word string) bool { return word == "" })
}
