package deputy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/internal/usage"
)

const eventLine = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"1","userAgent":"mine"}`

// findSoon waits until there are lines with a text, and returns them.
func findSoon(t *testing.T, l *growingLog, text string) string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		lines, err := l.find(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) > 0 {
			return string(lines[0])
		}
	}
	t.Fatalf("%s: there is no line with %q", l.source, text)
	return ""
}

// TestGrowingLogs reads logs from a file, a command and an audit webhook backend.
func TestGrowingLogs(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(file, []byte(strings.Replace(eventLine, "mine", "old", 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		source string
		write  func(l *growingLog)
	}{
		"a file": {file, func(*growingLog) {
			if err := os.WriteFile(file, []byte(strings.Replace(eventLine, "mine", "old", 1)+"\n"+eventLine+"\n"), 0o600); err != nil {
				t.Error(err)
			}
		}},
		"a command": {"command:echo '" + eventLine + "'; echo noise >&2; exec sleep 300", func(*growingLog) {}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := openGrowing(ctx, "audit-log", c.source)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.close() }()
			c.write(l)
			if got := findSoon(t, l, "mine"); got != eventLine {
				t.Errorf("got %q", got)
			}
			if lines, err := l.find("old", "noise"); err != nil || len(lines) > 0 {
				t.Errorf("what was there before, and what is no log, is taken: %q, %v", lines, err)
			}
		})
	}
}

// TestEndedCommandIsReported checks that an error says that a command has ended, and what it printed, if the log lacks what it
// should have.
func TestEndedCommandIsReported(t *testing.T) {
	l, err := openGrowing(context.Background(), "audit-log", "command:echo no such log group >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	for deadline := time.Now().Add(30 * time.Second); l.failure() == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		continue
	}
	if _, err := l.find("mine"); err == nil || !strings.Contains(err.Error(), `the command ended (exit status 3): "no such log group`) {
		t.Error(err)
	}
}

// TestAuditWebhook sends batches as an API server does, and others that are refused.
func TestAuditWebhook(t *testing.T) {
	address := freeAddress(t)
	l, err := openGrowing(context.Background(), "audit-log", webhookSource+address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	batch := `{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": [` + "\n" + strings.Replace(eventLine, "mine", "first", 1) + ",\n" + eventLine + "\n]}"
	for body, want := range map[string]int{batch: 200, eventLine: 400, `{"kind": "EventList", "apiVersion": "audit.k8s.io/v1beta1"}`: 400, "": 400, "[": 400} {
		resp, err := http.Post("http://"+address+"/any", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q is answered %d, want %d", body, resp.StatusCode, want)
		}
	}
	if got := findSoon(t, l, "mine"); got != eventLine {
		t.Errorf("got %q", got)
	}
	if lines, err := l.find("auditID"); err != nil || len(lines) != 2 {
		t.Errorf("%q, %v", lines, err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestSourcesThatCannotBeOpened checks that the user can fix these errors, and that they name the flag.
func TestSourcesThatCannotBeOpened(t *testing.T) {
	for source, want := range map[string]string{
		"nosuch":                        "--audit-log: stat nosuch: no such file or directory",
		t.TempDir():                     "is not a file",
		webhookSource + "0.0.0.0:0":     "0.0.0.0:0 is not a loopback address: expected webhook:0.0.0.0:0,CERT,KEY",
		webhookSource + "127.0.0.1:0,a": "expected webhook:HOST:PORT or webhook:HOST:PORT,CERT,KEY",
		webhookSource + "nowhere":       "missing port in address",
	} {
		l, err := openGrowing(context.Background(), "audit-log", source)
		if !usage.Is(err) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q; %+v", source, err, want, l)
		}
	}
}
