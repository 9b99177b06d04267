// Package record keeps what a run saw: every piece of evidence is redacted, stored and chained to the one before as it is
// appended, so that a report can name the whole by one digest, and anybody can judge it again.
package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// Secrets as they look wherever they turn up: in an answer's text, an audit event, a log line within an error.
var (
	// bearer is a credential after its scheme. "Bearer token" in a sentence is not one, see looksRandom.
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+|%20|\.authorization\.k8s\.io\.)([A-Za-z0-9._~+/=-]{8,})`)
	// jwt begins with the base64 of {" as does every token of the API server, even one cut off before its first dot.
	jwt = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}(\.[A-Za-z0-9_-]*){0,4}`)
	// jwtData is the same once more in base64, as in a Secret's data.
	jwtData = regexp.MustCompile(`\bZXlK[A-Za-z0-9+/]{12,}={0,2}`)
	// pemKey ends at its last line or where base64 text and (escaped) line ends do.
	pemKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s]|\\[nr])*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?`)
	// pemData is PEM in base64; what it holds is looked at before it goes.
	pemData    = regexp.MustCompile(`\bLS0tLS1CRUdJTi[A-Za-z0-9+/]+={0,2}`)
	queryToken = regexp.MustCompile(`([?&](?:access_)?token=)[^&\s"'\[]+`) // a credential in a URL
	// keyData is the fields of a kubeconfig.
	keyData = regexp.MustCompile(`(client-key-data|clientKeyData)(\\?["']?\s*[:=]\s*\\?["']?)([A-Za-z0-9+/_-]+={0,2})`)
)

// secretFields hold a secret whatever it looks like.
var secretFields = []string{"authorization", "proxy-authorization", "cookie", "set-cookie", "token", "access_token", "id-token", "id_token", "refresh-token", "refresh_token", "password", "client-key-data", "clientkeydata", "bearertoken"}

// secretItem stands for the field of a Secret in a list, which has no kind of its own.
const secretItem = "item of a SecretList"

// Redact returns text with everything that looks like a credential replaced. It is idempotent. A pattern is tried only
// where a word is that it cannot do without: most texts have none of them, and looking for words costs far less.
func Redact(text string) string {
	if strings.Contains(text, "LS0tLS1CRUdJTi") {
		text = pemData.ReplaceAllStringFunc(text, func(s string) string {
			if head, _ := base64.StdEncoding.DecodeString(s[:min(len(s), 64)/4*4]); bytes.Contains(head, []byte("PRIVATE KEY")) {
				return redacted
			}
			return s
		})
	}
	for _, p := range []struct {
		word    string
		pattern *regexp.Regexp
		by      string
	}{
		{"PRIVATE KEY", pemKey, redacted}, {"key-data", keyData, "${1}${2}" + redacted}, {"KeyData", keyData, "${1}${2}" + redacted},
		{"eyJ", jwt, redacted}, {"ZXlK", jwtData, redacted}, {"token=", queryToken, "${1}" + redacted},
	} {
		if strings.Contains(text, p.word) {
			text = p.pattern.ReplaceAllString(text, p.by)
		}
	}
	if lower := strings.ToLower(text); !strings.Contains(lower, "bearer") && !strings.Contains(lower, "basic") {
		return text
	}
	return bearer.ReplaceAllStringFunc(text, func(s string) string {
		m := bearer.FindStringSubmatch(s)
		if !looksRandom(m[3]) {
			return s
		}
		return m[1] + m[2] + redacted
	})
}

// looksRandom reports whether what stands after "bearer" or "basic" is a credential and not a word.
func looksRandom(s string) bool {
	word := strings.Trim(s, ".-_/")
	isPlain := strings.Trim(word, "abcdefghijklmnopqrstuvwxyz-") == ""
	isCapitalized := len(word) > 0 && strings.ToLower(word[1:]) == word[1:] && !strings.ContainsAny(word, "0123456789+=")
	isWord := isPlain || isCapitalized
	return len(word) >= 24 || !isWord
}

// RedactedCopy returns a value as a reader of the record will have it: without credentials, and with times that have no
// monotonic clock. The word what names the value in errors.
func RedactedCopy[T any](v *T, what string) (*T, error) {
	out := new(T)
	raw, err := EncodeJSON(v, "")
	if err == nil {
		raw, _, err = redactJSON(raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		return nil, fmt.Errorf("redacting %s: %w", what, err)
	}
	return out, nil
}

// redactJSON redacts every string of a JSON value, and fields that are secret by name; raw itself if there were none.
func redactJSON(raw []byte) (clean []byte, changed bool, err error) {
	if Harmless(raw) {
		return raw, false, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, false, err
	}
	v, changed = redactValue("", v)
	if !changed {
		return raw, false, nil
	}
	clean, err = EncodeJSON(v, "")
	return clean, true, err
}

// suspicious are the words without one of which nothing in a JSON value is redacted: those of the patterns, in lower case,
// and the backslashes of what is a text within texts more often than twice; or how secretFields end and the kinds of
// Secrets, with what is behind them there.
var (
	suspicious = []string{
		"ls0tls1crudjti", "private key", "key-data", "keydata", "eyj", "zxlk", "token=", "bearer", "basic",
		`"kind":"secret`, `\"kind\":\"secret`, `\\\"kind\\\":\\\"secret`, `\\\\\\\`, `secret"`, `secretlist"`, `secret\`, `secretlist\`,
	}
	suspiciousFields = []string{"authorization", "cookie", "token", "password"}
)

// asField says that a word ends a field: a colon is behind it, after no more than a quote and space, as they are within texts.
func asField(lower []byte, word string) bool {
	for rest, found := lower, true; found; {
		if _, rest, found = bytes.Cut(rest, []byte(word)); bytes.HasPrefix(bytes.TrimLeft(rest, "\\\" \t\r\ntrn"), []byte(":")) {
			return true
		}
	}
	return false
}

// escapes are those of one character that no word above can have, and that encoders write for HTML's sake.
var escapes = []string{`\u003c`, `\u003e`, `\u0026`}

// Harmless reports whether nothing in a JSON value has to be redacted. Most values have none of the suspicious words,
// which is quick to find out.
func Harmless(raw []byte) bool {
	lower := bytes.ToLower(raw)
	hidden := bytes.Count(lower, []byte(`\u00`)) // of which a word can be made that is none of these
	for _, escape := range escapes {
		hidden -= bytes.Count(lower, []byte(escape))
	}
	return hidden == 0 && !slices.ContainsFunc(suspicious, func(word string) bool { return bytes.Contains(lower, []byte(word)) }) &&
		!slices.ContainsFunc(suspiciousFields, func(word string) bool { return asField(lower, word) })
}

// redactValue redacts a decoded JSON value, the value of field.
func redactValue(field string, v any) (_ any, changed bool) {
	switch v := v.(type) {
	case string:
		clean := redactString(field, v)
		return clean, clean != v
	case []any:
		for i := range v {
			var c bool
			v[i], c = redactValue(field, v[i])
			changed = changed || c
		}
		return v, changed
	case map[string]any:
		secret := v["kind"] == "Secret" || field == secretItem
		for k := range v {
			var c bool
			values, isMap := v[k].(map[string]any)
			isData := k == "data" || k == "stringData"
			switch {
			case isMap && secret && isData:
				c = blank(values)
			case k == "items" && v["kind"] == "SecretList":
				v[k], c = redactValue(secretItem, v[k])
			default:
				v[k], c = redactValue(k, v[k])
			}
			changed = changed || c
		}
		return v, changed
	}
	return v, false
}

// redactString redacts one string. One that is itself JSON, such as the body of an answer, is redacted as such
// and otherwise left as it was, byte by byte.
func redactString(field, s string) string {
	if s != "" && s != redacted && slices.Contains(secretFields, strings.ToLower(field)) {
		return redacted
	}
	if t := strings.TrimSpace(s); strings.HasPrefix(t, "{") {
		clean, changed, err := redactJSON([]byte(t))
		switch {
		case err == nil && changed:
			return strings.TrimSpace(string(clean))
		case err != nil && strings.Contains(t, `"kind":"Secret`):
			// Cut off in the middle: what of it is secret cannot be told.
			return redacted
		}
	}
	return Redact(s)
}

func blank(values map[string]any) (changed bool) {
	for k, v := range values {
		if v != redacted {
			values[k], changed = redacted, true
		}
	}
	return changed
}

// EncodeJSON is json.Marshal with < and > left readable, and indented unless indent is empty.
func EncodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return b.Bytes(), err
}
