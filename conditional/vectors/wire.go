package vectors

import (
	"slices"

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

// Effects are the effects that conditions and policies have, the strongest first. An effect is the decision that a
// set becomes if the condition is true.
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

// Mode is the one that the client asks for.
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

// Decision is what the answer says. A conditionsChain without sets breaks a rule, and holds nothing that could be
// evaluated: it is not Conditional.
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
	// Allowed, Denied, Conditions and ConditionsChain exclude each other.
	Allowed bool `json:"allowed,omitempty"`
	Denied  bool `json:"denied,omitempty"`
	// FailureMode is what becomes of an error in a Deny condition.
	FailureMode FailureMode `json:"failureMode,omitempty"`
	// AuthorizerName is unique within the server.
	AuthorizerName string `json:"authorizerName"`
	// Conditions have no order.
	Conditions []Condition `json:"conditions,omitempty"`
	// ConditionsChain are the sets of authorizers behind a composite one, in their order; not every revision of the
	// wire has it.
	ConditionsChain []ConditionSet `json:"conditionsChain,omitempty"`
}

// Leaves are the sets of a chain without sets of sets, in the order of their evaluation.
func Leaves(chain []ConditionSet) (out []ConditionSet) {
	for _, s := range chain {
		if s.ConditionsChain == nil {
			out = append(out, s)
		}
		out = append(out, Leaves(s.ConditionsChain)...)
	}
	return out
}

// FailureMode says what an error in a Deny condition becomes. The KEP names the type and the two outcomes, not the
// values.
type FailureMode string

// The two failure modes.
const (
	FailDeny      FailureMode = "Deny"
	FailNoOpinion FailureMode = "NoOpinion"
)

// Condition is SubjectAccessReviewCondition.
type Condition struct {
	// ID is unique within the authorizer's set.
	ID          string   `json:"id"`
	Effect      Decision `json:"effect"`
	Type        string   `json:"type"`
	Condition   string   `json:"condition"`
	Description string   `json:"description,omitempty"`
}

// AuthorizationConditionsRequest has the sets as the authorizer gave them, and what was unknown then.
type AuthorizationConditionsRequest struct {
	ConditionSets []ConditionSet `json:"conditionSets,omitempty"`
	ConditionData `json:",inline"`
}

// ConditionData is what is known in admission and not before. The KEP has these as the methods of the interface
// ConditionData ("Core interface changes") and does not list their JSON: the names are those of AdmissionReview.
type ConditionData struct {
	// Operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string `json:"operation,omitempty"`
	// Options are the operation's, for example CreateOptions.
	Options Object `json:"options,omitzero"`
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
	Verb        string `json:"verb"`
	APIGroup    string `json:"apiGroup"`
	APIVersion  string `json:"apiVersion"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	// UserInfo is the whole user that is impersonated.
	UserInfo *authenticationv1.UserInfo `json:"userInfo,omitempty"`
}

// Object is a JSON object, nil if there is none. Whole numbers in it are read as int64, as an API server reads them.
type Object map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(raw []byte) error {
	return utiljson.Unmarshal(raw, (*map[string]any)(o))
}

// RequestVariable is the name of the variable of what the first phase knows.
const RequestVariable = "request"

// LateVariables are the names of the variables of the second phase.
func LateVariables() []string {
	return []string{"operation", "options", "object", "oldObject", "namespaceObject", "impersonatedRequest"}
}

// RequestFields is the value of RequestVariable: every field that Policy lists.
func RequestFields(s authorizationv1.SubjectAccessReviewSpec) map[string]any {
	r, path := authorizationv1.ResourceAttributes{}, ""
	if s.ResourceAttributes != nil {
		r = *s.ResourceAttributes
	} else if s.NonResourceAttributes != nil {
		r.Verb, path = s.NonResourceAttributes.Verb, s.NonResourceAttributes.Path
	}
	out := fields(ImpersonatedRequest{r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Namespace, r.Name, nil})
	out["path"], out["userInfo"] = path, userFields(s.User, s.UID, s.Groups, s.Extra)
	return out
}

// Variables are the values of LateVariables. What is absent is null.
func (d ConditionData) Variables() map[string]any {
	out := map[string]any{"operation": d.Operation, "impersonatedRequest": nil}
	for name, o := range map[string]Object{"object": d.Object, "oldObject": d.OldObject, "options": d.Options, "namespaceObject": d.NamespaceObject} {
		out[name] = nil
		if o != nil {
			out[name] = map[string]any(o)
		}
	}
	if r := d.ImpersonatedRequest; r != nil {
		of := fields(*r)
		if u := r.UserInfo; u != nil {
			of["userInfo"] = userFields(u.Username, u.UID, u.Groups, u.Extra)
		}
		out["impersonatedRequest"] = of
	}
	return out
}

func fields(r ImpersonatedRequest) map[string]any {
	return map[string]any{
		"verb": r.Verb, "apiGroup": r.APIGroup, "apiVersion": r.APIVersion, "resource": r.Resource, "subresource": r.Subresource,
		"namespace": r.Namespace, "name": r.Name,
	}
}

func userFields[V ~[]string](name, uid string, groups []string, extra map[string]V) map[string]any {
	all := make(map[string]any, len(extra))
	for k, v := range extra {
		all[k] = []string(v)
	}
	return map[string]any{"username": name, "uid": uid, "groups": slices.Clone(groups), "extra": all}
}
