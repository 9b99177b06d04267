package conformance

import (
	"strings"
	"testing"

	"github.com/authzconf/authzconf/reports/record"
)

// TestRedactLog: what is kept of a log can be recorded, whatever was in it, and is its end.
func TestRedactLog(t *testing.T) {
	token := "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
	for name, text := range map[string]string{
		"a token":      "first\nAuthorization: Bearer " + token + "\nlast\n",
		"a key":        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nlast\n",
		"too long":     strings.Repeat("a line of a log\n", maxLog/10) + "last\n",
		"long, tokens": strings.Repeat("token "+token+"\n", maxLog/20) + "last\n",
	} {
		got := redactLog([]byte(text))
		if err := record.New().AppendFile(nameLog("1.37-gate-on", "a/b:c.log"), got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(got) > maxLog || !strings.HasSuffix(string(got), "last\n") || strings.Contains(string(got), token) {
			t.Errorf("%s: %d bytes, the end %q", name, len(got), got[max(0, len(got)-40):])
		}
	}
}
