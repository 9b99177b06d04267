package vectors

// Webhook is a conversation with an authorizer that has loaded policies.
type Webhook struct {
	Policies []Policy `json:"policies" yaml:"policies"` // the policies of the authorizer, as the KEP writes them
	// FailureMode says how a Deny policy in error is treated, if an authorizer can be configured so. If it is left out,
	// it is Deny.
	FailureMode FailureMode `json:"failureMode,omitempty" yaml:"failureMode,omitempty"`
	// Steps are done one after another.
	Steps []Step `json:"steps" yaml:"steps"`
}

// Policy has an effect of "Authorizer requirements": Deny (hard deny), NoOpinion (soft deny) or Allow. Its expression
// says when the effect applies.
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
// All fields of request always exist. They are empty if the review does not have them.
type Policy struct {
	// ID may become the ID of a condition.
	ID          string   `json:"id" yaml:"id"`
	Effect      Decision `json:"effect" yaml:"effect"`
	Expression  string   `json:"expression" yaml:"expression"`
	Description string   `json:"description,omitempty" yaml:"description,omitempty"` // for people
}

// Step has one of three fields.
type Step struct {
	// Authorize sends a SubjectAccessReview.
	Authorize *AuthorizeStep `json:"authorize,omitempty" yaml:"authorize,omitempty"`
	// Evaluate sends an AuthorizationConditionsReview.
	Evaluate *EvaluateStep `json:"evaluate,omitempty" yaml:"evaluate,omitempty"`
	// SetPolicies replaces the policies of the authorizer.
	SetPolicies []Policy `json:"setPolicies,omitempty" yaml:"setPolicies,omitempty"`
}

// AuthorizeStep is the first phase.
type AuthorizeStep struct {
	Spec SubjectAccessReviewSpec `json:"spec" yaml:"spec"`
	Want AuthorizeWant           `json:"want" yaml:"want"`
}

// AuthorizeWant is what is wanted of the answer to a SubjectAccessReview. Every answer must also follow the rules of
// its fields.
type AuthorizeWant struct {
	// OneOf are the right decisions: Allow, Deny, NoOpinion, Conditional. In most cases there is only one. The text
	// recommends the first.
	OneOf []Decision `json:"oneOf" yaml:"oneOf"`
	// Effects are the effects of the conditions, each once, in any order.
	Effects []Decision `json:"effects,omitempty" yaml:"effects,omitempty"`
	// Residuals are the conditions in CEL, in any order, judged as expressions and only of authorizers that answer in
	// CEL.
	Residuals []string `json:"residuals,omitempty" yaml:"residuals,omitempty"`
	// Error reports whether there is an evaluationError.
	Error *bool `json:"error,omitempty" yaml:"error,omitempty"`
}

// EvaluateStep is the second phase.
type EvaluateStep struct {
	// Of is the index of the step whose conditions are sent back unchanged: an authorize step, or an evaluate step
	// whose conditions evaluated to conditions. If the answer to that step was not conditional, this step asks nothing,
	// because the decision is final.
	Of   int           `json:"of" yaml:"of"`
	Data ConditionData `json:"data" yaml:"data"`
	Want EvaluateWant  `json:"want" yaml:"want"`
}

// EvaluateWant is what is wanted of the answer to an AuthorizationConditionsReview.
type EvaluateWant struct {
	// OneOf are the right decisions: Allow, Deny or NoOpinion, and Conditional if not everything is known yet.
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
