package scenarios

import (
	"slices"
	"strconv"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditExpect is about the audit event for the end of a request. Long-running requests also have one for the beginning
// of the answer, which must agree with it. A field that is nil is not judged.
type AuditExpect struct {
	// ImpersonatedUser reports whether the event has impersonatedUser. Its content is judged through Expect.User.
	ImpersonatedUser *bool `json:"impersonatedUser,omitempty" yaml:"impersonatedUser,omitempty"`
	// Constraint is the verb by which an impersonation was allowed, such as impersonate:user-info; audit events contain
	// it.
	//
	// It is authenticationMetadata.impersonationConstraint; "" means that it must be absent.
	Constraint *string `json:"constraint,omitempty" yaml:"constraint,omitempty"`
	// Decision is the annotation authorization.k8s.io/decision; "" means that it must be absent.
	Decision *string `json:"decision,omitempty" yaml:"decision,omitempty"`
}

// AuditField is a field of AuditExpect. The judge compares it, `authzconf report diff` shows it, and the model of the
// API server is compared with it, all by the table auditFields.
type AuditField struct {
	// Name is the name of the field in a scenario.
	Name string
	// Stated returns what an expectation states as text, or "" if it does not state the field.
	Stated func(*AuditExpect) string
	// Observed returns what an audit event has, as the same text.
	Observed func(*auditv1.Event) string
}

var auditFields = []AuditField{
	{
		Name:     "impersonatedUser",
		Stated:   func(a *AuditExpect) string { return renderPointer(a.ImpersonatedUser, strconv.FormatBool) },
		Observed: func(ev *auditv1.Event) string { return strconv.FormatBool(ev.ImpersonatedUser != nil) },
	},
	{
		Name:     "constraint",
		Stated:   func(a *AuditExpect) string { return renderPointer(a.Constraint, renderText) },
		Observed: func(ev *auditv1.Event) string { return renderText(ConstraintOf(ev)) },
	},
	{
		Name:     "decision",
		Stated:   func(a *AuditExpect) string { return renderPointer(a.Decision, renderText) },
		Observed: func(ev *auditv1.Event) string { return renderText(ev.Annotations[DecisionAnnotation]) },
	},
}

// AuditFields returns all fields of AuditExpect, in order.
func AuditFields() []AuditField { return slices.Clone(auditFields) }

// DecisionAnnotation is the annotation of an audit event that says how its request was authorized.
const DecisionAnnotation = "authorization.k8s.io/decision"

// ConstraintOf returns the identity verb of a constrained impersonation, or "" for the legacy kind.
func ConstraintOf(ev *auditv1.Event) string {
	if ev.AuthenticationMetadata == nil {
		return ""
	}
	return ev.AuthenticationMetadata.ImpersonationConstraint
}

// renderPointer returns what a field states, or "" if it states nothing.
func renderPointer[T any](value *T, render func(T) string) string {
	if value == nil {
		return ""
	}
	return render(*value)
}

// renderText returns a text in quotes. An empty one is absent from the event.
func renderText(s string) string {
	if s == "" {
		return "absent"
	}
	return strconv.Quote(s)
}

// checkAudit refuses values that no event can have.
func (c *checker) checkAudit(a *AuditExpect, path []any) {
	if a == nil {
		return
	}
	if a.Decision != nil {
		checkEnum(c, extend(path, "decision"), *a.Decision, "allow", "forbid")
	}
}

// deriveAudit returns what follows about the audit event. It returns nil if neither the reviews nor the resulting user
// are stated, if the mode is unknown, or if there is no event.
func (d deriver) deriveAudit(e Expect) *AuditExpect {
	isImpersonated, constraint, decision := d.isImpersonated(e.Outcome), "", ""
	mode := d.mode(e)
	isStated := e.statesReviews() || e.User != nil
	isModeUnknown := isImpersonated && mode == ""
	if !isStated || isModeUnknown || e.Outcome == HeadersTooLarge {
		return nil
	}
	if isImpersonated && mode != legacyMode {
		constraint = "impersonate:" + mode
	}
	switch {
	case e.Outcome == RequestForbidden:
		decision = "forbid"
	case isAuthorized(e.Outcome):
		decision = "allow"
	}
	return &AuditExpect{ImpersonatedUser: &isImpersonated, Constraint: &constraint, Decision: &decision}
}
