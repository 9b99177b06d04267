package enforcer

import (
	"fmt"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// Check is one question to the authorizer, and its answer.
type Check struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	Allowed     bool   `json:"allowed"`
}

// Decision is what became of a request whose fields are checked.
type Decision struct {
	User string `json:"user"`
	Verb string `json:"verb"`
	// Checks are in the order in which they were asked, the ordinary permission first.
	Checks []Check `json:"checks"`
	// Granular says that the ordinary permission was not held, and GeneralVerb was.
	Granular bool `json:"granular,omitempty"`
	// Fields is how many fields change; -1 if that was not computed.
	Fields int `json:"fields"`
	// Missing is why the request was denied for its fields.
	Missing *Missing `json:"missing,omitempty"`
	// Attempts is how often the stored object was read: more than once if it changed in between.
	Attempts int `json:"attempts,omitempty"`
}

// message is what a client is told who lacks a permission of a field: one, for finding
// all would be as many checks as somebody likes to cause (KEP-3617, step 8).
func message(r *Request, m *Missing) string {
	verb, reason := m.Verb, ""
	if verb == "" {
		verb, reason = r.Info.Verb, fmt.Sprintf("no granular permission covers %s", m.Field)
	}
	return responsewriters.ForbiddenStatusError(r.Attributes(verb), reason).ErrStatus.Message
}
