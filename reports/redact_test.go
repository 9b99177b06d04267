package reports

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Made for the tests; they open nothing.
var (
	secretJWT    = "eyJhbGciOiJSUzI1NiIsImtpZCI6IkFCQ0QifQ." + "eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0." + "c2lnbmF0dXJlLW9mLXRoZS10ZXN0"
	secretOpaque = "s3cr3t.Opaque-Token_0123456789"
	secretKey    = "-----BEGIN EC " + "PRIVATE KEY-----\nMHcCAQEEIBfaketestkeyfaketestkeyfaketest\nAAAA==\n-----END EC " + "PRIVATE KEY-----\n"
	secretData   = base64.StdEncoding.EncodeToString([]byte(secretKey))
	certificate  = base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIBpubliccertificate\n-----END CERTIFICATE-----\n"))
)

// secretParts must not be found in anything that was written.
func secretParts() []string {
	return []string{secretJWT, secretJWT[:30], "c2lnbmF0dXJl", secretOpaque, "faketestkey", secretData[:60], "aHVudGVyMg==", "hunter2"}
}

func TestRedact(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"bearer and JWT", "Authorization: Bearer " + secretJWT, "Authorization: Bearer [redacted]"},
		{"bearer and opaque", "bearer " + secretOpaque + " was sent", "bearer [redacted] was sent"},
		{"basic", "Basic aHVudGVyMg==", "Basic [redacted]"},
		{"JWT alone", "token " + secretJWT + ".", "token [redacted]"},
		{"JWT cut off", `{"status":{"token":"eyJhbGciOiJSUzI1NiIs`, `{"status":{"token":"[redacted]`},
		{"JWT in a Secret", "token: " + base64.StdEncoding.EncodeToString([]byte(secretJWT)), "token: [redacted]"},
		{"websocket protocol", "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(secretOpaque)), "base64url.bearer.authorization.k8s.io.[redacted]"},
		{"PEM", "x\n" + secretKey + "y", "x\n[redacted]\ny"},
		{"PEM, escaped", strings.ReplaceAll(secretKey, "\n", `\n`), `[redacted]\n`},
		{"PEM without end", secretKey[:70], "[redacted]"},
		{"PEM in base64", "data: " + secretData, "data: [redacted]"},
		{"kubeconfig", "client-key-data: " + secretData + "\n", "client-key-data: [redacted]\n"},
		{"kubeconfig in JSON", `{"client-key-data":"QUJD"}`, `{"client-key-data":"[redacted]"}`},
		{"query", "/api?watch=true&token=abc-def&x=1", "/api?watch=true&token=[redacted]&x=1"},
		{"certificate stays", "client-certificate-data: " + certificate, "client-certificate-data: " + certificate},
		{"words", "Bearer tokens are not stored. Basic authentication is gone. bearer credentials", "Bearer tokens are not stored. Basic authentication is gone. bearer credentials"},
		{"message", `pods is forbidden: User "x" cannot impersonate-on:user-info:list resource "pods"`, `pods is forbidden: User "x" cannot impersonate-on:user-info:list resource "pods"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Redact(c.in)
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if again := Redact(got); again != got {
				t.Errorf("again: %q", again)
			}
		})
	}
}

// spoil puts credentials wherever one could turn up.
func spoil(e *verdicts.Evidence) {
	o := &e.Steps[0]
	o.Request.Headers["Authorization"] = []string{"Bearer " + secretJWT}
	o.Request.Headers["Cookie"] = []string{"hunter2"}
	o.Request.Headers["Sec-Websocket-Protocol"] = []string{"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(secretOpaque))}
	o.Request.URL += "?access_token=" + secretJWT
	o.Request.Body = json.RawMessage(`{"kind":"Secret","stringData":{"password":"hunter2"}}`)
	o.Response.Warnings = []string{"token " + secretJWT + " is about to expire"}
	o.Response.Body = `{"kind":"SecretList","items":[{"data":{"a":"aHVudGVyMg=="}}],"note":"<` + secretJWT + `>"}`
	o.Audit = json.RawMessage(strings.Replace(string(o.Audit), `"kind":"Event"`, `"kind":"Event","requestObject":{"kind":"TokenRequest","status":{"token":"hunter2"}}`, 1))
}

func TestRedactEvidence(t *testing.T) {
	texts := testTexts(t)
	_, evidence := testRun(t, texts, []Cell{gateCell(scenarios.GateOn)}, nil)
	for _, e := range evidence {
		clean, err := RedactEvidence(e)
		if err != nil {
			t.Fatal(err)
		}
		if !same(clean, e) {
			t.Errorf("%s: evidence without a credential was changed: %s", e.Scenario, change(e, clean))
		}
	}
	e := evidence[0]
	spoil(e)
	clean, err := RedactEvidence(e)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := encodeJSON(clean, "")
	for _, s := range secretParts() {
		if strings.Contains(string(raw), s) {
			t.Errorf("%q is left", s)
		}
	}
	if !reflect.DeepEqual(clean.Steps[0].Reviews, e.Steps[0].Reviews) || verdicts.AuditOf(&clean.Steps[0]) == nil {
		t.Error("the structure did not survive")
	}
}

// Nothing that Write writes holds a credential, wherever it came from.
func TestWriteHoldsNoSecret(t *testing.T) {
	texts := testTexts(t)
	dir := t.TempDir()
	r, evidence := testRun(t, texts, []Cell{gateCell(scenarios.GateOn)}, spoil)
	evidence[0].Problems = []verdicts.Problem{{Blame: verdicts.BlameEnvironment, Text: "log: client-key-data: " + secretData}}
	r.Command = append(r.Command, "--header", "Authorization: Bearer "+secretOpaque)
	r.Cells[0].Problem = "last lines of the log:\n" + secretKey
	r.Cells[0].Results[0].Reason = "got " + secretJWT
	r.Complete(texts.Set, evidence, []KnownFailing{{Scenario: "x", Reason: secretJWT}})
	if err := Write(dir, r, evidence, texts); err == nil || !strings.Contains(err.Error(), "looks like a token or key") {
		t.Errorf("evidence that was not redacted: %v", err)
	}
	for i, e := range evidence {
		var err error
		if evidence[i], err = RedactEvidence(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(dir, r, evidence, texts); err != nil {
		t.Fatal(err)
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(os.DirFS(dir), name)
		for _, s := range secretParts() {
			if strings.Contains(string(data), s) {
				t.Errorf("%s holds %q", name, s)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheckTexts(t *testing.T) {
	const chance = "/eyJhbGciOiJIUzI1NiJ9"
	if err := checkTexts(map[string][]byte{htmlFile: []byte(`<script type="application/gzip">H4s` + chance + `</script>`)}); err != nil {
		t.Errorf("what is packed looks like a token: %v", err)
	}
	if err := checkTexts(map[string][]byte{htmlFile: []byte("<p>" + chance + "</p>")}); err == nil {
		t.Error("a token in a page was not found")
	}
	texts := testTexts(t)
	if err := CheckTexts(texts); err != nil {
		t.Error(err)
	}
	bad := Texts{Set: texts.Set, Scenarios: texts.Scenarios, Fixtures: overlayFS{texts.Fixtures, "kep-5284/node-agent.yaml", secretKey}}
	if err := CheckTexts(bad); err == nil || !strings.Contains(err.Error(), "fixtures/kep-5284/node-agent.yaml") {
		t.Errorf("got %v", err)
	}
}

// overlayFS has other content for one file.
type overlayFS struct {
	fs.FS
	name, content string
}

func (o overlayFS) ReadFile(name string) ([]byte, error) {
	if name == o.name {
		return []byte(o.content), nil
	}
	return fs.ReadFile(o.FS, name)
}

// TestHarmless wants nothing to pass as harmless that is redacted when it is read, however deep it is within texts.
func TestHarmless(t *testing.T) {
	secrets := []any{map[string]any{"kind": "Secret", "data": map[string]any{"a": "x"}}, map[string]any{"items": []any{map[string]any{"data": map[string]any{"a": "x"}}}, "kind": "SecretList"}}
	for _, field := range secretFields {
		secrets = append(secrets, map[string]any{strings.ToUpper(field[:1]) + field[1:]: "x"})
	}
	for _, text := range secretParts()[:3] {
		secrets = append(secrets, "Bearer "+text)
	}
	for _, text := range []string{"x\n" + secretKey, secretData, "client-key-data: QUJD", "/api?token=abc", base64.StdEncoding.EncodeToString([]byte(secretJWT)), `{"kind":"SecretSt`} {
		secrets = append(secrets, text)
	}
	for _, secret := range secrets {
		for range 3 {
			raw, err := json.Marshal(map[string]any{"value": secret})
			if err != nil {
				t.Fatal(err)
			}
			if clean, changed, err := redactJSON(raw); err != nil || !changed {
				t.Errorf("%s: changed %t to %s, %v", raw, changed, clean, err)
			}
			secret = string(raw)
		}
	}
	for _, space := range []string{"", " ", "\t", "\n", "\r"} { // before a colon, in a text that nobody has compacted
		text := `{"value": "{\"access_token\"` + strings.Trim(strconv.Quote(space), `"`) + `: \"x\"}"}`
		if clean, changed, err := redactJSON([]byte(text)); err != nil || !changed {
			t.Errorf("%s: changed %t to %s, %v", text, changed, clean, err)
		}
	}
	if text := []byte(`{"value": "\u0042earer 0123456789abcdefghijklmnop"}`); harmless(text) {
		t.Errorf("%s is harmless", text)
	}
	for _, text := range []string{
		`{"verb":"get","resource":"secrets","reason":"cannot impersonate"}`,
		`{"verb":"create","resource":"serviceaccounts","subresource":"token","name":"thing"}`,
		`{"message":"cannot impersonate-on:user-info:create resource \"serviceaccounts/token\" in API group \"\""}`,
		`{"requestURI":"/api?a=b\u0026c=d","message":"a field is \u003cnil\u003e"}`,
	} {
		if !harmless([]byte(text)) {
			t.Errorf("%s is not harmless", text)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("Bearer " + secretJWT)
	f.Add(secretKey + secretData)
	f.Fuzz(func(t *testing.T, text string) {
		once := Redact(text)
		if twice := Redact(once); twice != once {
			t.Errorf("%q, then %q", once, twice)
		}
		if json.Valid([]byte(text)) {
			if clean, _, err := redactJSON([]byte(text)); err != nil || !json.Valid(clean) {
				t.Errorf("JSON did not stay JSON: %q, %v", clean, err)
			}
		}
	})
}

// TestRedactedAsRead wants what is judged and shown to be what a reader of the report has: no monotonic clock, by which
// durations may be others, and no bytes that JSON cannot have.
func TestRedactedAsRead(t *testing.T) {
	now := time.Now()
	steps := func() []verdicts.Observation {
		return []verdicts.Observation{{Sent: now, Answered: now, Reviews: []verdicts.Review{{At: now}}, Requests: []verdicts.Observation{{Sent: now, Reviews: []verdicts.Review{{At: now}}}}}}
	}
	for _, scenario := range []string{"plain", "Bearer " + secretOpaque, "no \xff text"} {
		clean, err := RedactEvidence(&verdicts.Evidence{Scenario: scenario, Started: now, Ended: now, Steps: steps(), Control: &verdicts.Evidence{Started: now, Ended: now, Steps: steps()}})
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%+v %+v", *clean, *clean.Control)
		if strings.Contains(text, " m=") || !utf8.ValidString(text) || !clean.Control.Steps[0].Requests[0].Reviews[0].At.Equal(now) {
			t.Errorf("%s: %q", scenario, text)
		}
	}
}
