package certify

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/reports/record"
)

// read reads the fields of an answer from its body, as an API server does. The case of field names matters.
func (a *Answer) read(raw []byte, v Question) {
	switch {
	case 300 <= a.HTTP && a.HTTP < 400:
		a.Fault = "redirects"
		return
	case bytes.HasPrefix(bytes.TrimSpace(raw), []byte("<")):
		a.Fault = "answers-html"
		return
	}
	unreadable := "answer-unreadable"
	if a.HTTP < 200 || a.HTTP > http.StatusPartialContent { // client-go accepts any code up to 206 as an answer
		a.Fault, unreadable = "http-status", "http-status"
	}
	var r readReview
	if !r.decode(raw, v.Form) {
		a.Fault = unreadable
		return
	}
	if r.version != v.apiVersion() {
		a.APIVersion = word(r.version) + "?"
	}
	if r.kind != reference.Kind {
		a.Kind = word(r.kind) + "?"
	}
	a.Foreign = isForeign(r.spec, v)
	if r.status != nil && !a.readStatus(r.status) {
		a.Fault, a.Allowed, a.Denied = unreadable, false, false
	}
}

// fields are the fields of a JSON object, by their names as they are written.
type fields map[string]json.RawMessage

// get decodes a field into a value. It reports whether that was possible; a missing field counts as possible.
func (f fields) get(name string, into any) bool {
	raw, ok := f[name]
	return !ok || json.Unmarshal(raw, into) == nil
}

// readReview is a review in an answer, as an API server reads it.
type readReview struct {
	version, kind string
	spec          json.RawMessage
	status        fields
}

// decode reports whether a body is a review, and reads it.
func (r *readReview) decode(raw []byte, form Form) bool {
	var all fields
	if json.Unmarshal(raw, &all) != nil {
		return false
	}
	r.spec = all["spec"]
	named := all.get("apiVersion", &r.version) && all.get("kind", &r.kind) && all.get("status", &r.status)
	var into any = &authorizationv1.SubjectAccessReview{}
	if form == v1beta1 {
		into = &authorizationv1beta1.SubjectAccessReview{}
	}
	return named && kjson.UnmarshalCaseSensitivePreserveInts(raw, into) == nil
}

// statusFields are the fields of a status that an API server reads.
var statusFields = []string{"allowed", "denied", "evaluationError", "reason"}

// readStatus reads a status, and reports whether that was possible.
func (a *Answer) readStatus(status fields) bool {
	var problem, reason string
	decided := status.get("allowed", &a.Allowed) && status.get("denied", &a.Denied)
	explained := status.get("evaluationError", &problem) && status.get("reason", &reason)
	if !decided || !explained {
		return false
	}
	a.Status, a.EvalError, a.Inside = true, problem != "", findInside(reason+"\n"+problem)
	for _, name := range slices.Sorted(maps.Keys(status)) {
		if meansSomething(name) && len(a.Unknown) < maxUnknown {
			a.Unknown = append(a.Unknown, word(name))
		}
	}
	return true
}

// meansSomething reports whether somebody may take a field for one that API servers read, although they do not read it.
func meansSomething(name string) bool {
	isMisspelt := func(known string) bool { return known != name && strings.EqualFold(known, name) }
	return slices.ContainsFunc(statusFields, isMisspelt) || strings.HasPrefix(strings.ToLower(name), "condition")
}

// isForeign reports whether the spec that an answer repeats differs from the one that was sent. Leaving it out is not
// wrong, because an API server reads only the status.
func isForeign(raw json.RawMessage, v Question) bool {
	if len(raw) <= len("{}") {
		return false // nothing is repeated, as in the answers of most servers
	}
	body, err := v.body()
	if err != nil {
		return false
	}
	var echoed any
	var sent struct {
		Spec any `json:"spec"`
	}
	if json.Unmarshal(raw, &echoed) != nil || json.Unmarshal(redact(body), &sent) != nil {
		return false
	}
	// The answer was redacted when it was recorded, so what was sent has to be redacted too.
	a, err := record.RedactedCopy(&echoed, "an answer")
	if err != nil {
		return false
	}
	b, err := record.RedactedCopy(&sent.Spec, "a question")
	if err != nil {
		return false
	}
	return !isRepetition(*a, *b)
}

// isRepetition reports whether what is repeated is what was sent, apart from what is left out or empty.
func isRepetition(echoed, sent any) bool {
	switch e := echoed.(type) {
	case nil:
		return true
	case map[string]any:
		was, _ := sent.(map[string]any)
		for k, value := range e {
			if !isRepetition(value, was[k]) {
				return false
			}
		}
		return true
	case []any:
		return len(e) == 0 || reflect.DeepEqual(echoed, sent)
	}
	return reflect.ValueOf(echoed).IsZero() || echoed == sent
}
