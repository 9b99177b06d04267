package record

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// These secrets were made for the tests, and open nothing.
var (
	secretJWT    = "eyJhbGciOiJSUzI1NiIsImtpZCI6IkFCQ0QifQ." + "eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0." + "c2lnbmF0dXJlLW9mLXRoZS10ZXN0"
	secretOpaque = "s3cr3t.Opaque-Token_0123456789"
	secretKey    = "-----BEGIN EC " + "PRIVATE KEY-----\nMHcCAQEEIBfaketestkeyfaketestkeyfaketest\nAAAA==\n-----END EC " + "PRIVATE KEY-----\n"
	secretData   = base64.StdEncoding.EncodeToString([]byte(secretKey))
	certificate  = base64.StdEncoding.EncodeToString(
		[]byte("-----BEGIN CERTIFICATE-----\nMIIBpubliccertificate\n-----END CERTIFICATE-----\n"),
	)
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

// TestHarmless checks that nothing counts as harmless that is redacted when it is read, however deep it is nested in
// texts.
func TestHarmless(t *testing.T) {
	secrets := []any{
		map[string]any{"kind": "Secret", "data": map[string]any{"a": "x"}},
		map[string]any{"items": []any{map[string]any{"data": map[string]any{"a": "x"}}}, "kind": "SecretList"},
	}
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
	for _, space := range []string{"", " ", "\t", "\n", "\r"} { // before a colon, in a text that was not compacted
		text := `{"value": "{\"access_token\"` + strings.Trim(strconv.Quote(space), `"`) + `: \"x\"}"}`
		if clean, changed, err := redactJSON([]byte(text)); err != nil || !changed {
			t.Errorf("%s: changed %t to %s, %v", text, changed, clean, err)
		}
	}
	if text := []byte(`{"value": "\u0042earer 0123456789abcdefghijklmnop"}`); Harmless(text) {
		t.Errorf("%s is harmless", text)
	}
	for _, text := range []string{
		`{"verb":"get","resource":"secrets","reason":"cannot impersonate"}`,
		`{"verb":"create","resource":"serviceaccounts","subresource":"token","name":"thing"}`,
		`{"message":"cannot impersonate-on:user-info:create resource \"serviceaccounts/token\" in API group \"\""}`,
		`{"requestURI":"/api?a=b\u0026c=d","message":"a field is \u003cnil\u003e"}`,
	} {
		if !Harmless([]byte(text)) {
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
