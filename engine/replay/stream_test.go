package replay

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// frame is one as a server writes it.
func frame(opcode byte, payload string) string {
	switch n := len(payload); {
	case n < 126:
		return string([]byte{0x80 | opcode, byte(n)}) + payload
	default:
		return string([]byte{0x80 | opcode, 126, byte(n >> 8), byte(n)}) + payload
	}
}

func TestOutput(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct{ name, stream, want string }{
		{"stdout", frame(2, "\x01node-1\n") + frame(2, "\x03{}") + frame(8, "\x03\xe8"), "node-1\n"},
		{"in parts", frame(2, "\x01") + frame(2, "\x01a") + frame(2, "\x02warning") + frame(2, "\x01b"), "ab"},
		{"long", frame(2, "\x01"+long), long},
		{"failed", frame(2, "\x03{\"status\":\"Failure\"}") + frame(8, ""), `{"status":"Failure"}`},
		{"after the end", frame(8, "") + frame(2, "\x01late"), ""},
	} {
		got, err := output(&http.Response{Body: io.NopCloser(strings.NewReader(c.stream))})
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v", c.name, got, err)
		}
	}
}

func TestOutputBroken(t *testing.T) {
	for name, stream := range map[string]string{
		"half a frame": frame(2, "\x01node")[:4],
		"too large":    string([]byte{0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0}),
	} {
		if got, err := output(&http.Response{Body: io.NopCloser(bytes.NewReader([]byte(stream)))}); err == nil {
			t.Errorf("%s: got %q and no error", name, got)
		}
	}
}
