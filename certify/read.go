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

// read takes the body of an answer apart, as an API server does: the names of fields are compared as they are.
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
	if a.HTTP < 200 || a.HTTP > http.StatusPartialContent { // client-go takes what lies between for an answer
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

// fields are those of a JSON object, by their names as they are written.
type fields map[string]json.RawMessage

// get decodes a field, and reports whether it can be. One that is missing can.
func (f fields) get(name string, into any) bool {
	raw, ok := f[name]
	return !ok || json.Unmarshal(raw, into) == nil
}

// readReview is an answer that is a review as an API server reads it.
type readReview struct {
	version, kind string
	spec          json.RawMessage
	status        fields
}

// decode reports whether a body is a review.
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

// statusFields are those that an API server reads.
var statusFields = []string{"allowed", "denied", "evaluationError", "reason"}

// readStatus reports whether a status can be read.
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

// meansSomething reports whether somebody may take a field for one that API servers read, though they don't.
func meansSomething(name string) bool {
	isMisspelt := func(known string) bool { return known != name && strings.EqualFold(known, name) }
	return slices.ContainsFunc(statusFields, isMisspelt) || strings.HasPrefix(strings.ToLower(name), "condition")
}

// isForeign reports whether a spec that an answer repeats is another than the one that was sent. Left out is not wrong: an
// API server reads the status only.
func isForeign(raw json.RawMessage, v Question) bool {
	if len(raw) <= len("{}") {
		return false // nothing is repeated, which is what most servers do
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
	// The answer was redacted when it was recorded, so that both have to be.
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

// isRepetition reports whether what is echoed was sent, but for what is left out of it or empty.
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
