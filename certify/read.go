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

// readBody reads the fields of an answer from its body, as an API server does. The case of field names matters.
func (a *Answer) readBody(raw []byte, v Question) {
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
	var r parsedReview
	if !r.decode(raw, v.Form) {
		a.Fault = unreadable
		return
	}
	if r.version != v.apiVersion() {
		a.APIVersion = cutWord(r.version) + "?"
	}
	if r.kind != reference.Kind {
		a.Kind = cutWord(r.kind) + "?"
	}
	a.RepeatsAnotherSpec = repeatsAnotherSpec(r.spec, v)
	if r.status != nil && !a.readStatus(r.status) {
		a.Fault, a.Allowed, a.Denied = unreadable, false, false
	}
}

// fields are the fields of a JSON object, by their names as they are written.
type fields map[string]json.RawMessage

// decodeField decodes a field into a value. It reports whether that was possible; a missing field counts as possible.
func (f fields) decodeField(name string, target any) bool {
	raw, ok := f[name]
	return !ok || json.Unmarshal(raw, target) == nil
}

// parsedReview is a review in an answer, as an API server reads it.
type parsedReview struct {
	version, kind string
	spec          json.RawMessage
	status        fields
}

// decode reports whether a body is a review, and reads it.
func (r *parsedReview) decode(raw []byte, form Form) bool {
	var all fields
	if json.Unmarshal(raw, &all) != nil {
		return false
	}
	r.spec = all["spec"]
	hasTypes := all.decodeField("apiVersion", &r.version) && all.decodeField("kind", &r.kind) && all.decodeField("status", &r.status)
	var target any = &authorizationv1.SubjectAccessReview{}
	if form == v1beta1 {
		target = &authorizationv1beta1.SubjectAccessReview{}
	}
	return hasTypes && kjson.UnmarshalCaseSensitivePreserveInts(raw, target) == nil
}

// statusFields are the fields of a status that an API server reads.
var statusFields = []string{"allowed", "denied", "evaluationError", "reason"}

// readStatus reads a status, and reports whether that was possible.
func (a *Answer) readStatus(status fields) bool {
	var problem, reason string
	isDecoded := status.decodeField("allowed", &a.Allowed) && status.decodeField("denied", &a.Denied)
	explained := status.decodeField("evaluationError", &problem) && status.decodeField("reason", &reason)
	if !isDecoded || !explained {
		return false
	}
	a.HasStatus, a.HasEvaluationError, a.LeakedInternals = true, problem != "", findLeak(reason+"\n"+problem)
	for _, name := range slices.Sorted(maps.Keys(status)) {
		if isMisleading(name) && len(a.UnknownFields) < maxUnknown {
			a.UnknownFields = append(a.UnknownFields, cutWord(name))
		}
	}
	return true
}

// isMisleading reports whether somebody may take a field for one that API servers read, although they do not read it.
func isMisleading(name string) bool {
	isMisspelt := func(field string) bool { return field != name && strings.EqualFold(field, name) }
	return slices.ContainsFunc(statusFields, isMisspelt) || strings.HasPrefix(strings.ToLower(name), "condition")
}

// repeatsAnotherSpec reports whether the spec that an answer repeats differs from the one that was sent. Leaving it out
// is not wrong, because an API server reads only the status.
func repeatsAnotherSpec(raw json.RawMessage, v Question) bool {
	if len(raw) <= len("{}") {
		return false // nothing is repeated, as in the answers of most servers
	}
	body, err := v.body()
	if err != nil {
		return false
	}
	var echoed any
	var request struct {
		Spec any `json:"spec"`
	}
	if json.Unmarshal(raw, &echoed) != nil || json.Unmarshal(redact(body), &request) != nil {
		return false
	}
	// The answer was redacted when it was recorded, so what was sent has to be redacted too.
	a, err := record.RedactedCopy(&echoed, "an answer")
	if err != nil {
		return false
	}
	b, err := record.RedactedCopy(&request.Spec, "a question")
	if err != nil {
		return false
	}
	return !isRepetition(*a, *b)
}

// isRepetition reports whether what is repeated is what was sent, apart from what is left out or empty.
func isRepetition(echo, request any) bool {
	switch e := echo.(type) {
	case nil:
		return true
	case map[string]any:
		before, _ := request.(map[string]any)
		for k, value := range e {
			if !isRepetition(value, before[k]) {
				return false
			}
		}
		return true
	case []any:
		return len(e) == 0 || reflect.DeepEqual(echo, request)
	}
	return reflect.ValueOf(echo).IsZero() || echo == request
}
