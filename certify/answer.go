package certify

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Answer is what came back for one question. It has everything by which it is judged, and nothing that could be a
// secret.
type Answer struct {
	// Check is the check for which the question was sent, and Vector is the question's ID.
	Check  string `json:"check"`
	Vector string `json:"vector"`
	// HTTP is the status code, or 0 if no answer came. Protocol is the major version of HTTP, 1 or 2.
	HTTP     int   `json:"http,omitempty"`
	Protocol int   `json:"protocol,omitempty"`
	Millis   int64 `json:"ms,omitempty"`
	// AtMs is when the question was asked, from the beginning of the run. HarnessMs is how long the harness needed at
	// the same moment for a review of its own, if that was long.
	AtMs      int64 `json:"atMs,omitempty"`
	HarnessMs int64 `json:"harnessMs,omitempty"`
	// InFlight is how many reviews that were sent together had no answer yet when this one came, including itself.
	// IdleMs is how long nothing had been asked before it, if the pause was intended.
	InFlight int64 `json:"inFlight,omitempty"`
	IdleMs   int64 `json:"idleMs,omitempty"`
	// Raw is the body as it came, without anything that looks like a secret. A body longer than maxRaw is not kept:
	// then Length is how long it was, and the fields below are what was read from it.
	Raw    string `json:"raw,omitempty"`
	Length int    `json:"length,omitempty"`
	// Fault is the reason why no answer can be judged.
	Fault string `json:"fault,omitempty"`
	// APIVersion and Kind are given if they are not those of the review.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// HasStatus is set if the answer has a status. UnknownFields lists fields of it that API servers ignore although
	// they may mean something to somebody: conditions (KEP-5681), and known fields in other capitals.
	HasStatus          bool     `json:"status,omitempty"`
	Allowed            bool     `json:"allowed,omitempty"`
	Denied             bool     `json:"denied,omitempty"`
	HasEvaluationError bool     `json:"evaluationError,omitempty"`
	UnknownFields      []string `json:"unknown,omitempty"`
	// LeakedInternals says what the reason or the error shows of the inside of the authorizer. It is empty if they show
	// nothing of it.
	LeakedInternals string `json:"inside,omitempty"`
	// RepeatsAnotherSpec is set if the answer repeats another spec than the one that was sent.
	RepeatsAnotherSpec bool `json:"foreign,omitempty"`
	// WrongText is how the reason or the error of a wrong answer begins. If the body is not a review, it is how the body
	// begins.
	WrongText string `json:"said,omitempty"`
	// Connections is how many connections a check needed. Only the last answer of a check has it.
	Connections int64 `json:"opened,omitempty"`
	// Micros is the time from when the question should have been sent to the answer, and LateUs how late it was sent.
	// Both are in µs, and set only under load.
	Micros int64 `json:"us,omitempty"`
	LateUs int64 `json:"lateUs,omitempty"`
	// Stage describes the part of a load test whose answers follow. ClusterObservation is what an API
	// server did.
	Stage              *Stage              `json:"stage,omitempty"`
	ClusterObservation *ClusterObservation `json:"seen,omitempty"`
	// Control is set if the answer is the reference authorizer's, which was asked because of a finding about another
	// one.
	Control bool `json:"control,omitempty"`
}

// faultTooLarge is the fault of a body that was not read to its end.
const faultTooLarge = "answer-too-large"

// isBodyKept reports whether Raw is everything that came back, so that all other fields can be read from it again.
func (a Answer) isBodyKept() bool { return a.HTTP > 0 && a.Length == 0 && a.Fault != faultTooLarge }

// MarshalJSON leaves out what follows from the raw answer. Whoever judges the evidence reads that again.
func (a Answer) MarshalJSON() ([]byte, error) {
	type plain Answer
	if a.isBodyKept() {
		a = a.withoutBodyFields()
	}
	return json.Marshal(plain(a))
}

// withoutBodyFields returns the answer as it came, without the fields that were read from its body.
func (a Answer) withoutBodyFields() Answer {
	return Answer{
		Check: a.Check, Vector: a.Vector, HTTP: a.HTTP, Protocol: a.Protocol, Millis: a.Millis, Raw: a.Raw,
		AtMs: a.AtMs, HarnessMs: a.HarnessMs, InFlight: a.InFlight, IdleMs: a.IdleMs,
		Connections: a.Connections, Micros: a.Micros, LateUs: a.LateUs, Control: a.Control,
	}
}

// keepBody reads a body, and keeps it if it is short enough and removing secrets does not change whether it is JSON.
func (a *Answer) keepBody(body []byte, v Question) {
	raw := strings.ToValidUTF8(string(redact(body)), "\uFFFD")
	broken := raw != string(body) && json.Valid(body) != json.Valid([]byte(raw))
	if len(raw) > maxRaw || broken {
		a.Length = len(body)
	} else {
		a.Raw = raw
		body = []byte(raw)
	}
	a.readBody(body, v)
	a.keepWrongText(body, v)
}

// readBodyAgain returns an answer whose fields are read from its body again.
func (a Answer) readBodyAgain(v Question) Answer {
	if !a.isBodyKept() {
		return a
	}
	a = a.withoutBodyFields()
	a.readBody([]byte(a.Raw), v)
	a.keepWrongText([]byte(a.Raw), v)
	return a
}

// undecidedReason returns why an answer decides nothing. It returns "" if the answer decides, or if the harness was too
// late to know.
func (a Answer) undecidedReason() string {
	switch {
	case a.Fault == faultNoAnswerInTime && a.isTimeUnclear():
		return ""
	case a.Fault != "":
		return a.Fault
	case !a.HasStatus:
		return "no-status"
	}
	if a.Kind == unnamedType {
		return ""
	}
	return a.Kind
}

// unnamedType is the Kind or the APIVersion of an answer that has none. API servers read such an answer as the kind and
// version that they asked for.
const unnamedType = "?"

// isUnnamed reports whether an answer lacks its kind or its API version.
func (a Answer) isUnnamed() bool { return a.Kind == unnamedType || a.APIVersion == unnamedType }

// These limits bound what a server can put into the evidence: fields, the words of a finding, an explanation, and a
// body.
const maxUnknown, maxWord, maxWrongText, maxRaw = 5, 80, 200, 4 << 10

// cutWord returns the beginning of a text.
func cutWord(s string) string { return s[:min(len(s), maxWord)] }

var secret = regexp.MustCompile(`(?i)(bearer |basic |token[=: ]+|password[=: ]+|eyJ)[^\s"',\\]+`)

// redact returns a text without anything that looks like a secret. Most texts have no secret, and are not searched a
// second time.
func redact(text []byte) []byte {
	lower := bytes.ToLower(text)
	mayHoldSecret := slices.ContainsFunc([]string{"bearer", "basic", "token", "password", "eyj"}, func(word string) bool {
		return bytes.Contains(lower, []byte(word))
	})
	if mayHoldSecret {
		return secret.ReplaceAll(text, []byte("[redacted]"))
	}
	return text
}

// keepWrongText keeps how the authorizer explains a wrong answer.
func (a *Answer) keepWrongText(raw []byte, v Question) {
	if len(judge(v, *a)) == 0 {
		return
	}
	text := string(raw)
	var review struct {
		Status struct {
			Reason string `json:"reason"`
			Error  string `json:"evaluationError"`
		} `json:"status"`
	}
	if json.Unmarshal(raw, &review) == nil {
		text = strings.Trim(review.Status.Reason+" "+review.Status.Error, " ")
	}
	text = string(redact([]byte(text))) // the body may be too long to have been redacted already
	a.WrongText = strings.ToValidUTF8(text[:min(len(text), maxWrongText)], "")
}

// decision returns the decision that an API server reads from the answer.
func (a Answer) decision() scenarios.Decision {
	switch {
	case a.Denied:
		return scenarios.Deny
	case a.Allowed:
		return scenarios.Allow
	}
	return scenarios.NoOpinion
}
