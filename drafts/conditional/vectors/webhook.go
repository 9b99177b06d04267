package vectors

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
	// Error is whether an evaluationError is there.
	Error *bool `json:"error,omitempty" yaml:"error,omitempty"`
}

// EvaluateStep is the second phase.
type EvaluateStep struct {
	// Of is the index of the step whose conditions are sent back, as they were answered: an authorize step, or an evaluate
	// step whose conditions evaluated to conditions. If that answer was not conditional the step asks nothing: the decision
	// stands.
	Of   int           `json:"of" yaml:"of"`
	Data ConditionData `json:"data" yaml:"data"`
	Want EvaluateWant  `json:"want" yaml:"want"`
}

// EvaluateWant is what the answer to an AuthorizationConditionsReview is.
type EvaluateWant struct {
	// OneOf are the right decisions: Allow, Deny or NoOpinion, and Conditional where not all is known yet.
	OneOf []Decision `json:"oneOf" yaml:"oneOf"`
	Error *bool      `json:"error,omitempty" yaml:"error,omitempty"`
}

// FirstPhase returns the authorize step that the conditions of an evaluate step come from.
func (w *Webhook) FirstPhase(step int) *AuthorizeStep {
	for w.Steps[step].Evaluate != nil {
		step = w.Steps[step].Evaluate.Of
	}
	return w.Steps[step].Authorize
}
