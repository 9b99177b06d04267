// Package record stores what a run saw. Every piece of evidence is redacted, stored and chained to the previous one
// when it is appended, so that a report can identify all of it by one digest and anybody can judge it again.
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

// These match secrets wherever they occur: in the text of an answer, in an audit event, or in a log line within an
// error.
var (
	// bearer is a credential after its scheme. "Bearer token" in a sentence is not one, see looksRandom.
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+|%20|\.authorization\.k8s\.io\.)([A-Za-z0-9._~+/=-]{8,})`)
	// jwt begins with the base64 of {", as does every token of the API server, even if it is cut off before its first
	// dot.
	jwt = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}(\.[A-Za-z0-9_-]*){0,4}`)
	// jwtData is the same once more in base64, as in a Secret's data.
	jwtData = regexp.MustCompile(`\bZXlK[A-Za-z0-9+/]{12,}={0,2}`)
	// pemKey ends with the key's last line, or where base64 text and (escaped) line ends do.
	pemKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s]|\\[nr])*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?`)
	// pemData is PEM in base64. Its content is checked before it is removed.
	pemData    = regexp.MustCompile(`\bLS0tLS1CRUdJTi[A-Za-z0-9+/]+={0,2}`)
	queryToken = regexp.MustCompile(`([?&](?:access_)?token=)[^&\s"'\[]+`) // a credential in a URL
	// keyData is the fields of a kubeconfig.
	keyData = regexp.MustCompile(`(client-key-data|clientKeyData)(\\?["']?\s*[:=]\s*\\?["']?)([A-Za-z0-9+/_-]+={0,2})`)
)

// secretFields are fields whose content is always secret.
var secretFields = []string{
	"authorization",
	"proxy-authorization",
	"cookie",
	"set-cookie",
	"token",
	"access_token",
	"id-token",
	"id_token",
	"refresh-token",
	"refresh_token",
	"password",
	"client-key-data",
	"clientkeydata",
	"bearertoken",
}

// secretItem stands for the field of a Secret in a list, which does not state its kind.
const secretItem = "item of a SecretList"

// Redact returns text with everything replaced that looks like a credential. It is idempotent. It tries a pattern only
// if the text contains a word that the pattern needs, because most texts contain none, and searching for words costs
// far less.
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

// looksRandom reports whether what follows "bearer" or "basic" is a credential and not a word.
func looksRandom(s string) bool {
	word := strings.Trim(s, ".-_/")
	isPlain := strings.Trim(word, "abcdefghijklmnopqrstuvwxyz-") == ""
	isCapitalized := len(word) > 0 && strings.ToLower(word[1:]) == word[1:] && !strings.ContainsAny(word, "0123456789+=")
	isWord := isPlain || isCapitalized
	return len(word) >= 24 || !isWord
}

// RedactedCopy returns a value as a reader of the record will have it: without credentials, and with times that have no
// monotonic clock. what names the value in errors.
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

// redactJSON redacts every string of a JSON value, and fields that are secret by their name. It returns raw itself if
// there is nothing to redact.
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

// suspicious are words without which nothing in a JSON value is redacted. They are the words of the patterns in lower
// case, the backslashes of texts that are nested more than twice, and the ends of secretFields and the kinds of Secrets
// with what follows these.
var (
	suspicious = []string{
		"ls0tls1crudjti", "private key", "key-data", "keydata", "eyj", "zxlk", "token=", "bearer", "basic",
		`"kind":"secret`, `\"kind\":\"secret`, `\\\"kind\\\":\\\"secret`, `\\\\\\\`, `secret"`, `secretlist"`, `secret\`, `secretlist\`,
	}
	suspiciousFields = []string{"authorization", "cookie", "token", "password"}
)

// asField means that a word ends the name of a field: a colon follows it, after no more than a quote and space.
func asField(lower []byte, word string) bool {
	for rest, found := lower, true; found; {
		if _, rest, found = bytes.Cut(rest, []byte(word)); bytes.HasPrefix(bytes.TrimLeft(rest, "\\\" \t\r\ntrn"), []byte(":")) {
			return true
		}
	}
	return false
}

// escapes are escapes of single characters that encoders write for the sake of HTML. None of the words above contains
// these characters.
var escapes = []string{`\u003c`, `\u003e`, `\u0026`}

// Harmless reports whether nothing in a JSON value has to be redacted. Most values contain none of the suspicious
// words, which is quick to find out.
func Harmless(raw []byte) bool {
	lower := bytes.ToLower(raw)
	hidden := bytes.Count(lower, []byte(`\u00`)) // such escapes can hide a word
	for _, escape := range escapes {
		hidden -= bytes.Count(lower, []byte(escape))
	}
	return hidden == 0 && !slices.ContainsFunc(suspicious, func(word string) bool { return bytes.Contains(lower, []byte(word)) }) &&
		!slices.ContainsFunc(suspiciousFields, func(word string) bool { return asField(lower, word) })
}

// redactValue redacts a decoded JSON value. field is the name of the field that has it.
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

// redactString redacts one string. If it is itself JSON, such as the body of an answer, it is redacted as JSON;
// otherwise it stays the same byte by byte.
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
			// It is cut off in the middle, so nobody can tell which part of it is secret.
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

// EncodeJSON does the same as json.Marshal, but keeps < and > readable, and indents unless indent is empty.
func EncodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return b.Bytes(), err
}
