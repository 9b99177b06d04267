package verdicts

import (
	"encoding/json"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/authzconf/authzconf/scenarios"
)

// forbidden matches the texts of forbiddenMessage in
// k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
var forbidden = regexp.MustCompile(`User "([^"]*)" cannot (\S+) (?:resource|path) `)

// The HTTP status codes that tell outcomes apart (RFC 9110, RFC 6585).
const (
	codeBadRequest      = 400
	codeUnauthorized    = 401
	codeForbidden       = 403
	codeHeadersTooLarge = 431
)

const (
	// decisionAnnotation is set by WithAuthorization, so only on requests that got past impersonation.
	decisionAnnotation = "authorization.k8s.io/decision"
	escalationText     = "is attempting to grant RBAC permissions not currently held"
	noUserText         = "without impersonating a user"
)

// StatusOf decodes the answered metav1.Status; nil if the body is none.
func StatusOf(r Response) *metav1.Status {
	var st metav1.Status
	if err := json.Unmarshal([]byte(r.Body), &st); err != nil || st.Kind != "Status" {
		return nil
	}
	return &st
}

// AuditOf decodes the audit event of an observation; nil if there is none.
func AuditOf(o *Observation) *auditv1.Event {
	if len(o.Audit) == 0 {
		return nil
	}
	var ev auditv1.Event
	if err := json.Unmarshal(o.Audit, &ev); err != nil {
		return nil
	}
	return &ev
}

// ConstraintOf is the identity verb of a constrained impersonation; empty for the legacy kind.
func ConstraintOf(ev *auditv1.Event) string {
	if ev.AuthenticationMetadata == nil {
		return ""
	}
	return ev.AuthenticationMetadata.ImpersonationConstraint
}

// OutcomeOf classifies an answer from its code and text alone. It returns "" where these do not tell (a 400 or a
// 5xx that does not speak of impersonation): the audit event decides then.
func OutcomeOf(r Response) scenarios.Outcome {
	message := ""
	if st := StatusOf(r); st != nil {
		message = st.Message
	}
	switch {
	case r.Code == codeUnauthorized:
		return scenarios.Unauthenticated
	case r.Code == codeHeadersTooLarge:
		return scenarios.HeadersTooLarge
	case r.Code == codeForbidden:
		return forbiddenOutcome(message)
	case r.Code == codeBadRequest && strings.Contains(message, noUserText):
		return scenarios.BadRequest
	case r.Code == codeBadRequest, r.Code >= 500, r.Code == 0:
		return ""
	default:
		return scenarios.Allowed
	}
}

// forbiddenOutcome tells the three kinds of 403 apart by their texts.
func forbiddenOutcome(message string) scenarios.Outcome {
	if m := forbidden.FindStringSubmatch(message); m != nil {
		if _, ok := scenarios.ImpersonationMode(m[2]); ok {
			return scenarios.ImpersonationForbidden
		}
		return scenarios.RequestForbidden
	}
	if strings.Contains(message, escalationText) {
		return scenarios.EscalationForbidden
	}
	return scenarios.RequestForbidden
}

// expectedAnnotation is what the audit annotation authorization.k8s.io/decision has to be for an outcome.
func expectedAnnotation(o scenarios.Outcome) string {
	switch o {
	case scenarios.Allowed, scenarios.EscalationForbidden:
		return "allow"
	case scenarios.RequestForbidden:
		return "forbid"
	default:
		return ""
	}
}

// outcomeFromAudit settles the answers of which the text does not tell.
func outcomeFromAudit(code int, ev *auditv1.Event) scenarios.Outcome {
	if ev != nil && ev.Annotations[decisionAnnotation] == "allow" {
		return scenarios.Allowed
	}
	if code == codeBadRequest {
		return scenarios.BadRequest
	}
	return scenarios.ServerError
}
