package vectors

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types below are those that KEP-5681 adds to authorization.k8s.io, which
// k8s.io/api does not have: "Changes to (Self)SubjectAccessReview" and "Supporting
// webhooks through the AuthorizationConditionsReview API".

// SubjectAccessReview is authorization.k8s.io/v1 with the fields of the KEP.
type SubjectAccessReview struct {
	metav1.TypeMeta `json:",inline"`
	Spec            ReviewSpec   `json:"spec"`
	Status          ReviewStatus `json:"status,omitzero"`
}

// ReviewSpec is SubjectAccessReviewSpec.
type ReviewSpec struct {
	authorizationv1.SubjectAccessReviewSpec `json:",inline"`
	// ConditionalAuthorization left out says that conditions are not supported.
	ConditionalAuthorization *ConditionalAuthorization `json:"conditionalAuthorization,omitempty"`
}

// Mode is the ConditionsMode that the review asks for.
func (s *ReviewSpec) Mode() Mode {
	if s.ConditionalAuthorization == nil {
		return ModeNone
	}
	return s.ConditionalAuthorization.Mode
}

// ConditionalAuthorization is ConditionalAuthorizationConfiguration.
type ConditionalAuthorization struct {
	Mode Mode `json:"mode,omitempty"`
}

// Mode is ConditionsMode: whether the caller wants conditions, and how written.
type Mode string

// The modes ("Core interface changes").
const (
	ModeNone          Mode = ""
	ModeHumanReadable Mode = "HumanReadable"
	ModeOptimized     Mode = "Optimized"
)

// ReviewStatus is SubjectAccessReviewStatus.
type ReviewStatus struct {
	authorizationv1.SubjectAccessReviewStatus `json:",inline"`
	// ConditionsChain non-null makes the answer conditional; Allowed and Denied
	// must be false then.
	ConditionsChain []ConditionSet `json:"conditionsChain,omitempty"`
}

// ConditionSet is SubjectAccessReviewConditionSet: what one authorizer answered.
type ConditionSet struct {
	// Allowed, Denied and Conditions exclude each other.
	Allowed bool `json:"allowed,omitempty"`
	Denied  bool `json:"denied,omitempty"`
	// FailureMode is Deny or NoOpinion; relevant with conditions only.
	FailureMode    FailureMode `json:"failureMode,omitempty"`
	AuthorizerName string      `json:"authorizerName,omitempty"`
	Conditions     []Condition `json:"conditions,omitempty"`
}

// Condition is SubjectAccessReviewCondition.
type Condition struct {
	ID          string `json:"id"`
	Effect      Effect `json:"effect"`
	Type        string `json:"type,omitempty"`
	Condition   string `json:"condition,omitempty"`
	Description string `json:"description,omitempty"`
}

// Effect is ConditionEffect: what a true condition does.
type Effect string

// The effects ("Condition and ConditionSet data model").
const (
	EffectAllow     Effect = "Allow"
	EffectDeny      Effect = "Deny"
	EffectNoOpinion Effect = "NoOpinion"
)

// FailureMode says what an error of an authorizer's conditions counts as.
type FailureMode string

// The failure modes ("Computing a concrete decision from a ConditionSet"). The KEP
// has no word for the one that is meant if none is given.
const (
	FailureDeny      FailureMode = "Deny"
	FailureNoOpinion FailureMode = "NoOpinion"
)

// ConditionsReview is AuthorizationConditionsReview.
type ConditionsReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *ConditionsRequest  `json:"request,omitempty"`
	Response        *ConditionsResponse `json:"response,omitempty"`
}

// ConditionsRequest is AuthorizationConditionsRequest. The KEP leaves the names of
// the data's fields open; they are those of the interface ConditionData here.
type ConditionsRequest struct {
	// ConditionSets are those of the authorizer's answer, in its order.
	ConditionSets []ConditionSet `json:"conditionSets,omitempty"`
	Data          `json:",inline"`
}

// ConditionsResponse is AuthorizationConditionsResponse. Neither allowed nor denied
// is NoOpinion.
type ConditionsResponse struct {
	Allowed         bool   `json:"allowed"`
	Denied          bool   `json:"denied,omitempty"`
	Reason          string `json:"reason,omitempty"`
	EvaluationError string `json:"evaluationError,omitempty"`
}

// Data is ConditionData: what is not known when a request is authorized.
type Data struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string `json:"operation,omitempty"`
	// Options are the operation's, for example CreateOptions.
	Options map[string]any `json:"options,omitempty"`
	// Object is there for CREATE, UPDATE and CONNECT, OldObject for UPDATE and DELETE.
	Object    map[string]any `json:"object,omitempty"`
	OldObject map[string]any `json:"oldObject,omitempty"`
	// ImpersonatedRequest is what is unknown when impersonation is authorized
	// ("Constrained Impersonation through Conditional Authorization").
	ImpersonatedRequest *ImpersonatedRequest `json:"impersonatedRequest,omitempty"`
}

// ImpersonatedRequest is the request that somebody wants to make as another user,
// in the words that policies have for request.
type ImpersonatedRequest struct {
	Verb        string `json:"verb"`
	APIGroup    string `json:"apiGroup"`
	APIVersion  string `json:"apiVersion"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	// User is who is impersonated, whole.
	User *ImpersonatedUser `json:"user,omitempty"`
}

// ImpersonatedUser is the identity that is impersonated.
type ImpersonatedUser struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups,omitempty"`
}
