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
	// HumanReadable: conditions have a text and a description for people.
	HumanReadable Mode = "HumanReadable"
	// Optimized: conditions have an encoding for programs, and no description.
	Optimized Mode = "Optimized"
)

// Effects returns the effects of conditions and policies, the strongest first. An effect is the decision of a set in
// which such a condition is true.
func Effects() []Decision { return []Decision{Deny, NoOpinion, Allow} }

// SubjectAccessReviewSpec is the spec of a SubjectAccessReview with the fields of the KEP.
type SubjectAccessReviewSpec struct {
	authorizationv1.SubjectAccessReviewSpec `json:",inline"`
	// ConditionalAuthorization is nil if the client does not support conditions.
	ConditionalAuthorization *ConditionalAuthorizationConfiguration `json:"conditionalAuthorization,omitempty"`
}

// ConditionalAuthorizationConfiguration says how the client handles conditions.
type ConditionalAuthorizationConfiguration struct {
	Mode Mode `json:"mode,omitempty"`
}

// Mode returns the mode that the client asks for.
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

// AuthorizationConditionsResponse is the decision on conditions. It has the fields of a status. In some revisions of
// the wire conditions can evaluate to conditions.
type AuthorizationConditionsResponse = SubjectAccessReviewStatus

// Decision returns the decision of the answer. A conditionsChain without sets, which breaks a rule, is not Conditional.
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

// ConditionSet is SubjectAccessReviewConditionSet: the answer of one authorizer.
type ConditionSet struct {
	// Only one of Allowed, Denied, Conditions and ConditionsChain is set. In a union a set can have none of them: then
	// it has no opinion.
	Allowed bool `json:"allowed,omitempty"`
	Denied  bool `json:"denied,omitempty"`
	// FailureMode says how an error in a Deny condition is treated. A union has none.
	FailureMode FailureMode `json:"failureMode,omitempty"`
	// AuthorizerName is unique among the sets of a chain. It is empty if the set is the whole decision of a webhook, in
	// revisions of the wire that need no chain for that.
	AuthorizerName string `json:"authorizerName"`
	// Conditions are the conditions of the set. Their order has no meaning.
	Conditions []Condition `json:"conditions,omitempty"`
	// ConditionsChain has the sets of the authorizers inside a composite authorizer, in order. Not every revision has
	// it.
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

// FailureMode says how an error in a Deny condition is treated. The KEP names the type and the outcomes, but not the
// values.
type FailureMode string

// The two failure modes.
const (
	FailDeny      FailureMode = "Deny"
	FailNoOpinion FailureMode = "NoOpinion"
)

// Condition is what an authorizer makes its answer depend on in KEP-5681; it is evaluated when the object is known.
//
// Its name in the KEP is SubjectAccessReviewCondition.
type Condition struct {
	ID          string   `json:"id"` // unique within the authorizer's set
	Effect      Decision `json:"effect"`
	Type        string   `json:"type"`
	Condition   string   `json:"condition"`
	Description string   `json:"description,omitempty"`
}

// AuthorizationConditionsRequest has the sets as the authorizer gave them, and the data that was unknown at that time.
type AuthorizationConditionsRequest struct {
	// UID identifies the review. Authorized is the request for which the conditions were given. Both are sent only in
	// revisions of the wire whose request has an AdmissionRequest.
	UID           string                                  `json:"-"`
	Authorized    authorizationv1.SubjectAccessReviewSpec `json:"-"`
	ConditionSets []ConditionSet                          `json:"conditionSets,omitempty"`
	ConditionData `json:",inline"`
}

// ConditionData is the data that is known only in admission. In the KEP these are the methods of the interface
// ConditionData ("Core interface changes"), without their JSON names. The names here are those of AdmissionReview.
type ConditionData struct {
	Operation string `json:"operation,omitempty"` // CREATE, UPDATE, DELETE or CONNECT
	Options   Object `json:"options,omitzero"`    // the options of the operation, for example CreateOptions
	// Object exists for CREATE, UPDATE and CONNECT. OldObject exists for UPDATE and DELETE.
	Object    Object `json:"object,omitzero"`
	OldObject Object `json:"oldObject,omitzero"`
	// NamespaceObject is an open question of the KEP, and needed by its DRA example.
	NamespaceObject Object `json:"namespaceObject,omitzero"`
	// ImpersonatedRequest is unknown when impersonation is authorized.
	ImpersonatedRequest *ImpersonatedRequest `json:"impersonatedRequest,omitempty"`
}

// ImpersonatedRequest is the request that a user wants to make as another user (section "Constrained Impersonation
// through Conditional Authorization"). The KEP's expressions use its verb, apiGroup and resource, with the names of the
// fields of request. The other fields here are named in the same way, with the user as userInfo.
type ImpersonatedRequest struct {
	Verb        string                     `json:"verb"`
	APIGroup    string                     `json:"apiGroup"`
	APIVersion  string                     `json:"apiVersion"`
	Resource    string                     `json:"resource"`
	Subresource string                     `json:"subresource"`
	Namespace   string                     `json:"namespace"`
	Name        string                     `json:"name"`
	UserInfo    *authenticationv1.UserInfo `json:"userInfo,omitempty"` // all attributes of the user that is impersonated
}

// Object is a JSON object. It is nil if there is none. Whole numbers in it are read as int64, as an API server reads
// them.
type Object map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(raw []byte) error {
	return utiljson.Unmarshal(raw, (*map[string]any)(o))
}
