// Package auditlog reads audit logs of Kubernetes API servers: audit.k8s.io/v1 Events, one JSON document a line,
// and EventLists, plain or compressed. It is made for finding the few events that impersonate somebody among
// gigabytes of others: a line is decoded only if it holds the word. Memory does not grow with the log.
package auditlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// refused tells whether the event is of a request that the impersonation filter
// refused: there is nobody impersonated in it, and its 403 says so
// (k8s.io/apiserver/pkg/endpoints/filters/impersonation, checkAuthorization).
func refused(e *auditv1.Event) bool {
	return e.ImpersonatedUser == nil && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden &&
		strings.Contains(e.ResponseStatus.Message, "cannot impersonate")
}

const (
	apiGroup  = auditv1.GroupName + "/"
	eventKind = "Event"
	listKind  = "EventList"
)

// decode reads one event.
func decode(raw []byte) (*auditv1.Event, error) {
	var e auditv1.Event
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
