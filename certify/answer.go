package certify

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/authzconf/authzconf/scenarios"
)

// Answer is what came back for one question: everything that it is judged by, and nothing that could be a secret.
type Answer struct {
	// Check is what the question was sent for, and Vector is its ID.
	Check  string `json:"check"`
	Vector string `json:"vector"`
	// HTTP is the status code, 0 if no answer came, and Protocol is 1 or 2.
	HTTP     int   `json:"http,omitempty"`
	Protocol int   `json:"protocol,omitempty"`
	Millis   int64 `json:"ms,omitempty"`
	// AtMs is when it was asked, from the beginning of the run. HarnessMs is how long the harness itself needed for a review
	// of its own in the same moment, if that was long.
	AtMs      int64 `json:"atMs,omitempty"`
	HarnessMs int64 `json:"harnessMs,omitempty"`
	// InFlight is how many reviews that were sent together had no answer when this one came, itself included. IdleMs is how
	// long nothing had been asked before it, where that was meant to be.
	InFlight int64 `json:"inFlight,omitempty"`
	IdleMs   int64 `json:"idleMs,omitempty"`
	// Raw is the body as it came, without what looks like a secret. A body that is longer than maxRaw is not kept: Length
	// is how long it was, and what follows is what was read from it.
	Raw    string `json:"raw,omitempty"`
	Length int    `json:"length,omitempty"`
	// Fault says why there is no answer to be judged.
	Fault string `json:"fault,omitempty"`
	// APIVersion and Kind are given if they are not those of the review.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Status is set if the answer has one. Of its fields that API servers ignore Unknown has those that may mean something
	// to somebody: conditions (KEP-5681), and known ones in other capitals.
	Status    bool     `json:"status,omitempty"`
	Allowed   bool     `json:"allowed,omitempty"`
	Denied    bool     `json:"denied,omitempty"`
	EvalError bool     `json:"evaluationError,omitempty"`
	Unknown   []string `json:"unknown,omitempty"`
	// Inside says what the reason or the error shows of the authorizer's inside, empty if nothing.
	Inside string `json:"inside,omitempty"`
	// Foreign is set if the answer repeats another spec than the one sent.
	Foreign bool `json:"foreign,omitempty"`
	// Said is how the reason or the error begins, or a body that is not a review, if the answer is wrong.
	Said string `json:"said,omitempty"`
	// Opened is how many connections a check needed. It is on the last answer of a check only.
	Opened int64 `json:"opened,omitempty"`
	// Micros is how long it took from when it was meant to be sent, LateUs how late it was; under load only, in µs.
	Micros int64 `json:"us,omitempty"`
	LateUs int64 `json:"lateUs,omitempty"`
	// Stage says what follows under load, Seen what an API server did.
	Stage *Stage `json:"stage,omitempty"`
	Seen  *Seen  `json:"seen,omitempty"`
	// Control is set if the reference authorizer was asked, for a finding about another one.
	Control bool `json:"control,omitempty"`
}

// tooLarge is the fault of a body that was not read to its end.
const tooLarge = "answer-too-large"

// isKept reports whether Raw is all that came back, so that everything else can be read from it again.
func (a Answer) isKept() bool { return a.HTTP > 0 && a.Length == 0 && a.Fault != tooLarge }

// MarshalJSON leaves out what follows from the raw answer: whoever judges the evidence reads that again.
func (a Answer) MarshalJSON() ([]byte, error) {
	type plain Answer
	if a.isKept() {
		a = a.withoutReading()
	}
	return json.Marshal(plain(a))
}

// withoutReading returns the answer as it came, before anything was read from it.
func (a Answer) withoutReading() Answer {
	return Answer{
		Check: a.Check, Vector: a.Vector, HTTP: a.HTTP, Protocol: a.Protocol, Millis: a.Millis, Raw: a.Raw,
		AtMs: a.AtMs, HarnessMs: a.HarnessMs, InFlight: a.InFlight, IdleMs: a.IdleMs,
		Opened: a.Opened, Micros: a.Micros, LateUs: a.LateUs, Control: a.Control,
	}
}

// keep keeps a body, if it is not too long and still the same JSON without its secrets, and reads it.
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

// reread returns an answer with what its body says, which is read again.
func (a Answer) reread(v Question) Answer {
	if !a.isKept() {
		return a
	}
	a = a.withoutReading()
	a.read([]byte(a.Raw), v)
	a.keepWords([]byte(a.Raw), v)
	return a
}

// useless returns why an answer decides nothing, empty if it decides, or if the harness was too late to know.
func (a Answer) useless() string {
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

// unnamed is the Kind, and the APIVersion, of an answer that has none. API servers read it as what they asked for.
const unnamed = "?"

// isUnnamed reports whether an answer does not say what it is.
func (a Answer) isUnnamed() bool { return a.Kind == unnamed || a.APIVersion == unnamed }

// What a server can put into the evidence is bounded: of a body, and of what it says in a finding. secret might be one.
const maxUnknown, maxWord, maxSaid, maxRaw = 5, 80, 200, 4 << 10

// word returns the beginning of a text.
func word(s string) string { return s[:min(len(s), maxWord)] }

var secret = regexp.MustCompile(`(?i)(bearer |basic |token[=: ]+|password[=: ]+|eyJ)[^\s"',\\]+`)

// redact returns a text without what looks like a secret. Most have none, and are not looked through twice.
func redact(text []byte) []byte {
	lower := bytes.ToLower(text)
	if slices.ContainsFunc([]string{"bearer", "basic", "token", "password", "eyj"}, func(word string) bool { return bytes.Contains(lower, []byte(word)) }) {
		return secret.ReplaceAll(text, []byte("[redacted]"))
	}
	return text
}

// keepWords keeps how the authorizer explains an answer that is wrong.
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
	said = string(redact([]byte(said))) // of a body that is too long to be kept
	a.Said = strings.ToValidUTF8(said[:min(len(said), maxSaid)], "")
}

// decision returns what an API server makes of the answer.
func (a Answer) decision() scenarios.Decision {
	switch {
	case a.Denied:
		return scenarios.Deny
	case a.Allowed:
		return scenarios.Allow
	}
	return scenarios.NoOpinion
}
