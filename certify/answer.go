package certify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/authzconf/authzconf/certify/reference"
	"github.com/authzconf/authzconf/scenarios"
)

// Answer is what came back for one question: everything that it is judged by, and nothing that could be a secret.
type Answer struct {
	Check    string `json:"check"` // what the vector was sent for
	Vector   string `json:"vector"`
	HTTP     int    `json:"http,omitempty"` // the status code, Protocol 1 or 2
	Protocol int    `json:"protocol,omitempty"`
	Millis   int64  `json:"ms,omitempty"`
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
	// Status says whether the answer has one. Of its fields that API servers ignore Unknown has those that may mean
	// something to somebody: conditions (KEP-5681), and known ones in other capitals.
	Status    bool     `json:"status,omitempty"`
	Allowed   bool     `json:"allowed,omitempty"`
	Denied    bool     `json:"denied,omitempty"`
	EvalError bool     `json:"evaluationError,omitempty"`
	Unknown   []string `json:"unknown,omitempty"`
	// Foreign says that the answer repeats another spec than the one sent.
	Foreign bool `json:"foreign,omitempty"`
	// Said is how the reason or the error begins, or a body that is not a review, if the answer is wrong.
	Said   string `json:"said,omitempty"`
	Opened int64  `json:"opened,omitempty"` // how many connections a check needed; on its last answer only
	// Micros is how long it took from when it was meant to be sent, LateUs how late it was; under load only, in µs.
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
	raw := strings.ToValidUTF8(string(redacted(body)), "\uFFFD")
	if len(raw) > maxRaw || raw != string(body) && json.Valid(body) != json.Valid([]byte(raw)) {
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

// What a server can put into the evidence is bounded: of a body, and of what it says in a finding. secret might be one.
const maxUnknown, maxWord, maxSaid, maxRaw, digestLength = 5, 80, 200, 4 << 10, 32

func word(s string) string { return s[:min(len(s), maxWord)] }

var secret = regexp.MustCompile(`(?i)(bearer |basic |token[=: ]+|password[=: ]+|eyJ)[^\s"',\\]+`)

// redacted is a text without what looks like a secret. Most have none, and are not looked through twice.
func redacted(text []byte) []byte {
	lower := bytes.ToLower(text)
	if slices.ContainsFunc([]string{"bearer", "basic", "token", "password", "eyj"}, func(word string) bool { return bytes.Contains(lower, []byte(word)) }) {
		return secret.ReplaceAll(text, []byte("[redacted]"))
	}
	return text
}

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
	said = string(redacted([]byte(said))) // of a body that is too long to be kept
	a.Said = strings.ToValidUTF8(said[:min(len(said), maxSaid)], "")
}

// read takes the body of an answer apart, as an API server does: the names of fields are compared as they are.
func (a *Answer) read(raw []byte, v Question) {
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
	if a.HTTP < 200 || a.HTTP > http.StatusPartialContent { // client-go takes what lies between for an answer
		a.Fault, unreadable = "http-status", "http-status"
	}
	var review, status map[string]json.RawMessage
	var version, kind string
	var into any = &authorizationv1.SubjectAccessReview{}
	if v.Form == v1beta1 {
		into = &authorizationv1beta1.SubjectAccessReview{}
	}
	if json.Unmarshal(raw, &review) != nil || !field(review, "apiVersion", &version) || !field(review, "kind", &kind) || !field(review, "status", &status) ||
		kjson.UnmarshalCaseSensitivePreserveInts(raw, into) != nil {
		a.Fault = unreadable
		return
	}
	if version != v.apiVersion() {
		a.APIVersion = word(version) + "?"
	}
	if kind != reference.Kind {
		a.Kind = word(kind) + "?"
	}
	a.foreign(review["spec"], v)
	if status == nil {
		return
	}
	var said string
	if !field(status, "allowed", &a.Allowed) || !field(status, "denied", &a.Denied) || !field(status, "evaluationError", &said) || !field(status, "reason", new(string)) {
		a.Fault, a.Allowed, a.Denied = unreadable, false, false
		return
	}
	a.Status, a.EvalError = true, said != ""
	known := []string{"allowed", "denied", "evaluationError", "reason"}
	for _, f := range slices.Sorted(maps.Keys(status)) {
		misspelt := slices.ContainsFunc(known, func(k string) bool { return k != f && strings.EqualFold(k, f) })
		if (misspelt || strings.HasPrefix(strings.ToLower(f), "condition")) && len(a.Unknown) < maxUnknown {
			a.Unknown = append(a.Unknown, word(f))
		}
	}
}

func field(of map[string]json.RawMessage, name string, into any) bool {
	raw, ok := of[name]
	return !ok || json.Unmarshal(raw, into) == nil
}

// foreign compares a repeated spec with what was sent. Left out is not wrong: an API server reads the status only.
func (a *Answer) foreign(raw json.RawMessage, v Question) {
	if len(raw) <= len("{}") {
		return // nothing is repeated, which is what most servers do
	}
	body, err := v.body()
	var sent struct {
		Spec any `json:"spec"`
	}
	var echoed any
	if err == nil && json.Unmarshal(raw, &echoed) == nil && json.Unmarshal(redacted(body), &sent) == nil {
		a.Foreign = !repeats(echoed, sent.Spec)
	}
}

// repeats says whether what is echoed was sent, but for what is left out of it or empty.
func repeats(echoed, sent any) bool {
	switch e := echoed.(type) {
	case nil:
		return true
	case map[string]any:
		was, _ := sent.(map[string]any)
		for k, value := range e {
			if !repeats(value, was[k]) {
				return false
			}
		}
		return true
	case []any:
		return len(e) == 0 || reflect.DeepEqual(echoed, sent)
	}
	return reflect.ValueOf(echoed).IsZero() || echoed == sent
}

func (a Answer) decision() scenarios.Decision {
	switch {
	case a.Denied:
		return scenarios.Deny
	case a.Allowed:
		return scenarios.Allow
	}
	return scenarios.NoOpinion
}

const maxShown = 4 << 10

// Explain sends a question of a plan once more, and shows request and answer on one screen: what was asked, as curl
// would send it, what came back, what is right and why. Its error is about the input.
func Explain(ctx context.Context, w *Webhook, b *Plan, id string) (text string, right bool, err error) {
	v, ok := b.vector(id)
	if !ok {
		return "", false, fmt.Errorf("seed %d has no question %q: findings name theirs first, as in scenario/…#3 or relation/ignores-name/1", b.Policy.Seed, id)
	}
	c, err := w.client(false)
	if err != nil {
		return "", false, err
	}
	defer c.close()
	request, err := c.curl(ctx, v)
	if err != nil {
		return "", false, err
	}
	a := c.ask(ctx, plain, v)
	wrong := judge(v, a)
	verdict := "right"
	if len(wrong) > 0 {
		verdict = "wrong: " + strings.Join(wrong, ", ")
	}
	answer := a.Raw
	if a.Length > 0 {
		answer = fmt.Sprintf("(%d bytes)", a.Length)
	}
	return fmt.Sprintf("%s\n\n%s\n\nHTTP/%d %d in %d ms\n%s\n\n%s (level %s)\n", b.describe(v, a), request, a.Protocol, a.HTTP, a.Millis, strings.TrimSpace(answer), verdict, v.Level), len(wrong) == 0, nil
}

// curl is the request of a question for a shell. It holds no credentials: they are named as files.
func (c *client) curl(ctx context.Context, v Question) (string, error) {
	body, err := v.body()
	if err != nil {
		return "", err
	}
	method := cmp.Or(v.Method, http.MethodPost)
	req, err := c.request(ctx, method, body)
	if err != nil {
		return "", err
	}
	flags := []string{"curl", "-X", method}
	tls := c.config.TLSClientConfig
	for _, f := range []struct {
		given bool
		flag  string
	}{
		{tls.Insecure, "--insecure"}, {len(tls.CAData)+len(tls.CAFile) > 0, "--cacert ca.pem"},
		{len(tls.CertData)+len(tls.CertFile) > 0, "--cert client.pem --key client-key.pem"},
		{c.config.BearerToken+c.config.BearerTokenFile != "", `-H "Authorization: Bearer $TOKEN"`},
		{c.config.Username != "", `--user "$USER_AND_PASSWORD"`},
	} {
		if f.given {
			flags = append(flags, f.flag)
		}
	}
	for _, name := range []string{"Content-Type", "Accept"} {
		flags = append(flags, fmt.Sprintf("-H '%s: %s'", name, req.Header.Get(name)))
	}
	shown := strings.ToValidUTF8(string(body), "\uFFFD")
	if len(shown) > maxShown {
		shown = fmt.Sprintf("%s… (%d bytes in all)", strings.ToValidUTF8(shown[:maxShown], ""), len(body))
	}
	return fmt.Sprintf("%s \\\n  --data-binary @- '%s' <<'EOF'\n%s\nEOF", strings.Join(flags, " "), req.URL, shown), nil
}
