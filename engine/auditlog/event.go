// Package auditlog reads audit logs of Kubernetes API servers: audit.k8s.io/v1 Events, one JSON document a line,
// and EventLists, plain or compressed. It is made for finding the few events that impersonate somebody among
// gigabytes of others: a line is decoded only if it holds the word. Memory does not grow with the log.
package auditlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Event is what of an audit event concerns impersonation (k8s.io/apiserver/pkg/apis/audit/v1, Event). All of it is
// there from level Metadata on.
type Event struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	AuditID    string `json:"auditID"`
	// Stage is ResponseStarted, ResponseComplete or Panic: an event of the stage
	// RequestReceived is written before anybody is impersonated.
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	// Verb is that of the request: for a path the HTTP method in lower case.
	Verb string `json:"verb"`
	// User authenticated, ImpersonatedUser is who the request was authorized as.
	User             User            `json:"user"`
	ImpersonatedUser *User           `json:"impersonatedUser"`
	ResponseStatus   *ResponseStatus `json:"responseStatus"`
	// AuthenticationMetadata is there from Kubernetes 1.35 on.
	AuthenticationMetadata *struct {
		ImpersonationConstraint string `json:"impersonationConstraint"`
	} `json:"authenticationMetadata"`
}

// User is authentication.k8s.io/v1, UserInfo.
type User struct {
	Username string              `json:"username"`
	UID      string              `json:"uid"`
	Groups   []string            `json:"groups"`
	Extra    map[string][]string `json:"extra"`
}

// ResponseStatus is how the request was answered.
type ResponseStatus struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Constraint is the identity verb of a constrained impersonation; empty for the legacy kind.
func (e *Event) Constraint() string {
	if e.AuthenticationMetadata == nil {
		return ""
	}
	return e.AuthenticationMetadata.ImpersonationConstraint
}

// refused tells whether the event is of a request that the impersonation filter
// refused: there is nobody impersonated in it, and its 403 says so
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation, checkAuthorization).
func (e *Event) refused() bool {
	return e.ImpersonatedUser == nil && e.ResponseStatus != nil && e.ResponseStatus.Code == 403 &&
		strings.Contains(e.ResponseStatus.Message, "cannot impersonate")
}

const (
	apiGroup  = "audit.k8s.io/"
	eventKind = "Event"
	listKind  = "EventList"
)

// decode reads one event.
func decode(raw []byte) (*Event, error) {
	var e Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	switch {
	case !strings.HasPrefix(e.APIVersion, apiGroup) || e.Kind != eventKind:
		return nil, fmt.Errorf("not an audit event but kind %q of %q", e.Kind, e.APIVersion)
	case e.Stage == "" || e.Verb == "" || e.RequestURI == "" || e.User.Username == "":
		return nil, errors.New("an audit event without stage, verb, requestURI or user")
	}
	return &e, nil
}
