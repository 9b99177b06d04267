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
	// Status is set if the answer has a status. Unknown lists fields of it that API servers ignore although they may
	// mean something to somebody: conditions (KEP-5681), and known fields in other capitals.
	Status    bool     `json:"status,omitempty"`
	Allowed   bool     `json:"allowed,omitempty"`
	Denied    bool     `json:"denied,omitempty"`
	EvalError bool     `json:"evaluationError,omitempty"`
	Unknown   []string `json:"unknown,omitempty"`
	// Inside says what the reason or the error shows of the inside of the authorizer. It is empty if that is nothing.
	Inside string `json:"inside,omitempty"`
	// Foreign is set if the answer repeats another spec than the one that was sent.
	Foreign bool `json:"foreign,omitempty"`
	// Said is how the reason or the error of a wrong answer begins. If the body is not a review, it is how the body
	// begins.
	Said string `json:"said,omitempty"`
	// Opened is how many connections a check needed. Only the last answer of a check has it.
	Opened int64 `json:"opened,omitempty"`
	// Micros is the time from when the question should have been sent to the answer, and LateUs how late it was sent.
	// Both are in µs, and set only under load.
	Micros int64 `json:"us,omitempty"`
	LateUs int64 `json:"lateUs,omitempty"`
	// Stage describes the part of a load test whose answers follow. Seen is what an API server did.
	Stage *Stage `json:"stage,omitempty"`
	Seen  *Seen  `json:"seen,omitempty"`
	// Control is set if the answer is the reference authorizer's, which was asked because of a finding about another
	// one.
	Control bool `json:"control,omitempty"`
}

// tooLarge is the fault of a body that was not read to its end.
const tooLarge = "answer-too-large"

// isKept reports whether Raw is everything that came back, so that all other fields can be read from it again.
func (a Answer) isKept() bool { return a.HTTP > 0 && a.Length == 0 && a.Fault != tooLarge }

// MarshalJSON leaves out what follows from the raw answer. Whoever judges the evidence reads that again.
func (a Answer) MarshalJSON() ([]byte, error) {
	type plain Answer
	if a.isKept() {
		a = a.withoutReading()
	}
	return json.Marshal(plain(a))
}

// withoutReading returns the answer as it came, without the fields that were read from its body.
func (a Answer) withoutReading() Answer {
	return Answer{
		Check: a.Check, Vector: a.Vector, HTTP: a.HTTP, Protocol: a.Protocol, Millis: a.Millis, Raw: a.Raw,
		AtMs: a.AtMs, HarnessMs: a.HarnessMs, InFlight: a.InFlight, IdleMs: a.IdleMs,
		Opened: a.Opened, Micros: a.Micros, LateUs: a.LateUs, Control: a.Control,
	}
}

// keep reads a body, and keeps it if it is short enough and removing secrets does not change whether it is JSON.
func (a *Answer) keep(body []byte, v Question) {
	raw := strings.ToValidUTF8(string(redact(body)), "\uFFFD")
	broken := raw != string(body) && json.Valid(body) != json.Valid([]byte(raw))
	if len(raw) > maxRaw || broken {
		a.Length = len(body)
	} else {
		a.Raw = raw
		body = []byte(raw)
	}
	a.read(body, v)
	a.keepWords(body, v)
}

// reread returns an answer whose fields are read from its body again.
func (a Answer) reread(v Question) Answer {
	if !a.isKept() {
		return a
	}
	a = a.withoutReading()
	a.read([]byte(a.Raw), v)
	a.keepWords([]byte(a.Raw), v)
	return a
}

// undecidedReason returns why an answer decides nothing. It returns "" if the answer decides, or if the harness was too late to
// know.
func (a Answer) undecidedReason() string {
	switch {
	case a.Fault == noAnswerInTime && a.isTimeUnclear():
		return ""
	case a.Fault != "":
		return a.Fault
	case !a.Status:
		return "no-status"
	}
	if a.Kind == unnamed {
		return ""
	}
	return a.Kind
}

// unnamed is the Kind or the APIVersion of an answer that has none. API servers read such an answer as the kind and
// version that they asked for.
const unnamed = "?"

// isUnnamed reports whether an answer lacks its kind or its API version.
func (a Answer) isUnnamed() bool { return a.Kind == unnamed || a.APIVersion == unnamed }

// These limits bound what a server can put into the evidence: fields, the words of a finding, an explanation, and a
// body.
const maxUnknown, maxWord, maxSaid, maxRaw = 5, 80, 200, 4 << 10

// word returns the beginning of a text.
func word(s string) string { return s[:min(len(s), maxWord)] }

var secret = regexp.MustCompile(`(?i)(bearer |basic |token[=: ]+|password[=: ]+|eyJ)[^\s"',\\]+`)

// redact returns a text without anything that looks like a secret. Most texts have no secret, and are not searched a
// second time.
func redact(text []byte) []byte {
	lower := bytes.ToLower(text)
	if slices.ContainsFunc([]string{"bearer", "basic", "token", "password", "eyj"}, func(word string) bool { return bytes.Contains(lower, []byte(word)) }) {
		return secret.ReplaceAll(text, []byte("[redacted]"))
	}
	return text
}

// keepWords keeps how the authorizer explains a wrong answer.
func (a *Answer) keepWords(raw []byte, v Question) {
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
	said = string(redact([]byte(said))) // the body may be too long to have been redacted already
	a.Said = strings.ToValidUTF8(said[:min(len(said), maxSaid)], "")
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
