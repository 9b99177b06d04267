package vectors

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Mode is ConditionsMode: whether a client wants conditions, and in which form.
type Mode string

// The modes (section "Core interface changes").
const (
	// None: the client does not support conditions and never gets any.
	None Mode = ""
	// HumanReadable: condition and description for people.
	HumanReadable Mode = "HumanReadable"
	// Optimized: an encoding for programs, without description.
	Optimized Mode = "Optimized"
)

// Effects returns those of conditions and policies, the strongest first: the decision that a set becomes if one is true.
func Effects() []Decision { return []Decision{Deny, NoOpinion, Allow} }

// SubjectAccessReviewSpec is what is asked.
type SubjectAccessReviewSpec struct {
	authorizationv1.SubjectAccessReviewSpec `json:",inline"`
	// ConditionalAuthorization is nil if the client does not support conditions.
	ConditionalAuthorization *ConditionalAuthorizationConfiguration `json:"conditionalAuthorization,omitempty"`
}

// ConditionalAuthorizationConfiguration is what the client says about conditions.
type ConditionalAuthorizationConfiguration struct {
	Mode Mode `json:"mode,omitempty"`
}

// Mode returns the one that the client asks for.
func (s SubjectAccessReviewSpec) Mode() Mode {
	if s.ConditionalAuthorization == nil {
		return None
	}
	return s.ConditionalAuthorization.Mode
}

// SubjectAccessReviewStatus is the answer.
type SubjectAccessReviewStatus struct {
	Allowed         bool   `json:"allowed"`
	Denied          bool   `json:"denied,omitempty"`
	Reason          string `json:"reason,omitempty"`
	EvaluationError string `json:"evaluationError,omitempty"`
	// ConditionsChain has a set for each authorizer, in their order. If it is not nil, Allowed and Denied are false.
	ConditionsChain []ConditionSet `json:"conditionsChain,omitempty"`
}

// AuthorizationConditionsResponse is the decision on the conditions, and says it as a status does. In some revisions
// of the wire conditions can evaluate to conditions.
type AuthorizationConditionsResponse = SubjectAccessReviewStatus

// Decision returns what the answer says. A conditionsChain without sets, which breaks a rule, is not Conditional.
func (s *SubjectAccessReviewStatus) Decision() Decision {
	switch {
	case len(s.ConditionsChain) > 0:
		return Conditional
	case s.Denied:
		return Deny
	case s.Allowed:
		return Allow
	}
	return NoOpinion
}

// ConditionSet is SubjectAccessReviewConditionSet: what one authorizer says.
type ConditionSet struct {
	// Allowed, Denied, Conditions and ConditionsChain exclude each other. In a union a set can have none of them: it is
	// of no opinion.
	Allowed bool `json:"allowed,omitempty"`
	Denied  bool `json:"denied,omitempty"`
	// FailureMode is what becomes of an error in a Deny condition. A union has none.
	FailureMode FailureMode `json:"failureMode,omitempty"`
	// AuthorizerName is unique among the sets of a chain. It is empty if the set is all that a webhook decides, in
	// revisions of the wire that need no chain to say so.
	AuthorizerName string `json:"authorizerName"`
	// Conditions have no order.
	Conditions []Condition `json:"conditions,omitempty"`
	// ConditionsChain are the sets of authorizers behind a composite one, in order; not every revision has it.
	ConditionsChain []ConditionSet `json:"conditionsChain,omitempty"`
}

// Leaves returns the sets of a chain without sets of sets, in the order of their evaluation.
func Leaves(chain []ConditionSet) (out []ConditionSet) {
	for _, s := range chain {
		if s.ConditionsChain == nil {
			out = append(out, s)
		}
		out = append(out, Leaves(s.ConditionsChain)...)
	}
	return out
}

// FailureMode says what an error in a Deny condition becomes. The KEP names type and outcomes, not the values.
type FailureMode string

// The two failure modes.
const (
	FailDeny      FailureMode = "Deny"
	FailNoOpinion FailureMode = "NoOpinion"
)

// Condition is what an authorizer makes its answer depend on in KEP-5681; it is evaluated when the object is known.
//
// It is SubjectAccessReviewCondition.
type Condition struct {
	ID          string   `json:"id"` // unique within the authorizer's set
	Effect      Decision `json:"effect"`
	Type        string   `json:"type"`
	Condition   string   `json:"condition"`
	Description string   `json:"description,omitempty"`
}

// AuthorizationConditionsRequest has the sets as the authorizer gave them, and what was unknown then.
type AuthorizationConditionsRequest struct {
	// UID identifies the review, and Authorized is the request that the conditions were given for. Both are sent only in
	// revisions of the wire that have an AdmissionRequest here.
	UID           string                                  `json:"-"`
	Authorized    authorizationv1.SubjectAccessReviewSpec `json:"-"`
	ConditionSets []ConditionSet                          `json:"conditionSets,omitempty"`
	ConditionData `json:",inline"`
}

// ConditionData is what is known in admission and not before. The KEP has these as the methods of the interface
// ConditionData ("Core interface changes") and does not list their JSON: the names are those of AdmissionReview.
type ConditionData struct {
	Operation string `json:"operation,omitempty"` // CREATE, UPDATE, DELETE or CONNECT
	Options   Object `json:"options,omitzero"`    // the operation's, for example CreateOptions
	// Object is there for CREATE, UPDATE and CONNECT, OldObject for UPDATE and DELETE.
	Object    Object `json:"object,omitzero"`
	OldObject Object `json:"oldObject,omitzero"`
	// NamespaceObject is an open question of the KEP, and needed by its DRA example.
	NamespaceObject Object `json:"namespaceObject,omitzero"`
	// ImpersonatedRequest is what is unknown when impersonation is authorized.
	ImpersonatedRequest *ImpersonatedRequest `json:"impersonatedRequest,omitempty"`
}

// ImpersonatedRequest is the request that somebody wants to make as another user (section "Constrained
// Impersonation through Conditional Authorization"). The KEP's expressions have its verb, apiGroup and resource,
// named as in request; so are the others here, with the user as userInfo.
type ImpersonatedRequest struct {
	Verb        string                     `json:"verb"`
	APIGroup    string                     `json:"apiGroup"`
	APIVersion  string                     `json:"apiVersion"`
	Resource    string                     `json:"resource"`
	Subresource string                     `json:"subresource"`
	Namespace   string                     `json:"namespace"`
	Name        string                     `json:"name"`
	UserInfo    *authenticationv1.UserInfo `json:"userInfo,omitempty"` // the whole user that is impersonated
}

// Object is a JSON object, nil if there is none. Whole numbers in it are read as int64, as an API server reads them.
type Object map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(raw []byte) error {
	return utiljson.Unmarshal(raw, (*map[string]any)(o))
}
