package reports

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/authzconf/authzconf/reports/record"
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
	raw, _ := record.EncodeJSON(clean, "")
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
