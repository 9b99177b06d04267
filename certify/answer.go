package certify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Answer is what came back for one question: everything that it is judged by, and nothing that could be a secret.
type Answer struct {
	// Check is what the vector was sent for.
	Check  string `json:"check"`
	Vector string `json:"vector"`
	// HTTP is the status code, Protocol 1 or 2.
	HTTP     int   `json:"http,omitempty"`
	Protocol int   `json:"protocol,omitempty"`
	Millis   int64 `json:"ms,omitempty"`
	// Raw is the body as it came, without what looks like a secret, and Digest the beginning of its SHA-256. A longer
	// body than maxRaw is not kept: Length is how long it was, and what follows is what was read from it.
	Raw    string `json:"raw,omitempty"`
	Digest string `json:"digest,omitempty"`
	Length int    `json:"length,omitempty"`
	// Fault says why there is no answer to be judged.
	Fault string `json:"fault,omitempty"`
	// APIVersion and Kind are given if they are not those of the review.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Status says whether the answer has one; the fields of it that no version of a review has are in Unknown.
	Status    bool     `json:"status,omitempty"`
	Allowed   bool     `json:"allowed,omitempty"`
	Denied    bool     `json:"denied,omitempty"`
	EvalError bool     `json:"evaluationError,omitempty"`
	Unknown   []string `json:"unknown,omitempty"`
	// Foreign says that the answer repeats another spec than the one sent.
	Foreign bool `json:"foreign,omitempty"`
	// Said is how the reason or the error begins, or a body that is not a review, if the answer is wrong.
	Said string `json:"said,omitempty"`
	// Opened is how many connections a check needed; on its last answer only.
	Opened int64 `json:"opened,omitempty"`
	// Micros is how long it took from when the review was meant to be sent, LateUs how late it was sent, in
	// microseconds; under load only.
	Micros int64 `json:"us,omitempty"`
	LateUs int64 `json:"lateUs,omitempty"`
	// Stage says what follows under load, Seen what an API server did.
	Stage *Stage `json:"stage,omitempty"`
	Seen  *Seen  `json:"seen,omitempty"`
	// Control says that the reference authorizer was asked, for a finding about another one.
	Control bool `json:"control,omitempty"`
}

// MarshalJSON leaves out what follows from the raw answer: whoever judges the evidence reads that again.
func (a Answer) MarshalJSON() ([]byte, error) {
	type plain Answer
	if a.Digest != "" {
		a = a.unread()
	}
	return json.Marshal(plain(a))
}

// unread is the answer as it came, before anything was read from it.
func (a Answer) unread() Answer {
	return Answer{
		Check: a.Check, Vector: a.Vector, HTTP: a.HTTP, Protocol: a.Protocol, Millis: a.Millis, Raw: a.Raw, Digest: a.Digest,
		Opened: a.Opened, Micros: a.Micros, LateUs: a.LateUs, Control: a.Control,
	}
}

// keep keeps a body, if it is not too long and still the same JSON without its secrets, and reads it.
func (a *Answer) keep(body []byte, v Question) {
	raw := strings.ToValidUTF8(secret.ReplaceAllString(string(body), "[redacted]"), "\uFFFD")
	if len(raw) > maxRaw || json.Valid(body) != json.Valid([]byte(raw)) {
		a.Length = len(body)
	} else {
		a.Raw, a.Digest = raw, digest([]byte(raw))[:digestLength]
		body = []byte(raw)
	}
	a.read(body, v)
	a.keepWhat(body, v)
}

// reread reads a raw answer again. Its error is about evidence that nobody can have got by asking.
func (a Answer) reread(v Question) (Answer, error) {
	switch {
	case a.Digest == "" && a.Raw == "" && (a.Fault != "" && a.HTTP == 0 || a.Length > 0 || a.Fault == "answer-too-large"):
		return a, nil
	case a.Digest == "":
		return a, fmt.Errorf("the answer to %q is not in it as it came", a.Vector)
	case a.Digest != digest([]byte(a.Raw))[:digestLength]:
		return a, fmt.Errorf("the answer to %q is not the one that its digest is of", a.Vector)
	}
	a = a.unread()
	a.read([]byte(a.Raw), v)
	a.keepWhat([]byte(a.Raw), v)
	return a, nil
}

// useless says why an answer decides nothing, if it does not.
func (a Answer) useless() string {
	switch {
	case a.Fault != "":
		return a.Fault
	case !a.Status:
		return "no-status"
	}
	return a.Kind
}

// maxUnknown bounds what a server can put into the evidence.
const maxUnknown, maxWord = 5, 80

func word(s string) string { return s[:min(len(s), maxWord)] }

// maxSaid bounds what an authorizer says in a finding, maxRaw what of an answer is in the evidence; secret is what might
// be one.
const maxSaid, maxRaw, digestLength = 200, 4 << 10, 32

var secret = regexp.MustCompile(`(?i)(bearer |basic |token[=: ]+|password[=: ]+|eyJ)[^\s"',\\]+`)

// keepWhat keeps what was said with an answer that is wrong.
func (a *Answer) keepWhat(raw []byte, v Question) {
	if len(judge(v, *a)) == 0 {
		return
	}
	said := string(raw)
	var review struct {
		Status struct {
			Reason string `json:"reason"`
			Error  string `json:"evaluationError"`
		} `json:"status"`
	}
	if json.Unmarshal(raw, &review) == nil {
		said = strings.Trim(review.Status.Reason+" "+review.Status.Error, " ")
	}
	said = secret.ReplaceAllString(said, "[redacted]") // of a body that is too long to be kept
	a.Said = strings.ToValidUTF8(said[:min(len(said), maxSaid)], "")
}

// read takes the body of an answer apart.
func (a *Answer) read(raw []byte, v Question) {
	var review struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Spec       json.RawMessage `json:"spec"`
		Status     json.RawMessage `json:"status"`
	}
	start := bytes.TrimSpace(raw)
	switch {
	case 300 <= a.HTTP && a.HTTP < 400:
		a.Fault = "redirects"
		return
	case bytes.HasPrefix(start, []byte("<")):
		a.Fault = "answers-html"
		return
	}
	unreadable := "answer-unreadable"
	if a.HTTP < 200 || a.HTTP > 299 {
		a.Fault, unreadable = "http-status", "http-status"
	}
	if json.Unmarshal(raw, &review) != nil {
		a.Fault = unreadable
		return
	}
	if review.APIVersion != v.apiVersion() {
		a.APIVersion = word(review.APIVersion) + "?"
	}
	if review.Kind != reviewKind {
		a.Kind = word(review.Kind) + "?"
	}
	a.foreign(review.Spec, v)
	if len(review.Status) == 0 || bytes.Equal(review.Status, []byte("null")) {
		return
	}
	var status struct {
		Allowed   bool   `json:"allowed"`
		Denied    bool   `json:"denied"`
		EvalError string `json:"evaluationError"`
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(review.Status, &status) != nil || json.Unmarshal(review.Status, &fields) != nil {
		a.Fault = unreadable
		return
	}
	a.Status, a.Allowed, a.Denied, a.EvalError = true, status.Allowed, status.Denied, status.EvalError != ""
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"allowed", "denied", "evaluationError", "reason"}, f) && len(a.Unknown) < maxUnknown {
			a.Unknown = append(a.Unknown, word(f))
		}
	}
}

// foreign compares the fields of a repeated spec with those that were sent. Left out or empty is not wrong: an API
// server reads the status only.
func (a *Answer) foreign(raw json.RawMessage, v Question) {
	if len(raw) <= len("{}") {
		return // nothing is repeated, which is what most servers do
	}
	body, err := v.body()
	var sent struct {
		Spec map[string]any `json:"spec"`
	}
	var echoed map[string]any
	if err != nil || json.Unmarshal(raw, &echoed) != nil || json.Unmarshal(secret.ReplaceAll(body, []byte("[redacted]")), &sent) != nil {
		return
	}
	for k, value := range echoed {
		if empty := reflect.ValueOf(value); value == nil || empty.IsZero() {
			continue
		}
		if !reflect.DeepEqual(value, sent.Spec[k]) {
			a.Foreign = true
		}
	}
}

// decision is what the answer says.
func (a Answer) decision() scenarios.Decision {
	switch {
	case a.Denied:
		return scenarios.Deny
	case a.Allowed:
		return scenarios.Allow
	}
	return scenarios.NoOpinion
}
