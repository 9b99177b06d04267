package gate

import (
	"os"
	"testing"
)

// TestAuditLog checks that the annotations of a request are found once, in a log that is still being written.
func TestAuditLog(t *testing.T) {
	a, err := newAuditLog()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.remove() }()
	if err := a.readOn(); err != nil || len(a.annotations) != 0 {
		t.Errorf("a log that is not there yet: %v, %v", a.annotations, err)
	}
	write := func(text string) {
		file, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
		}
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(
		`{"auditID":"1","stage":"ResponseStarted"}` + "\n" + `{"auditID":"1","stage":"ResponseComplete","annotations":{"a":"b"}}` + "\n" + `{"auditID":"2",`,
	)
	if got, err := a.take(t.Context(), "1"); err != nil || got["a"] != "b" {
		t.Errorf("%v, %v", got, err)
	}
	write(`"stage":"ResponseComplete"}` + "\n")
	if got, err := a.take(t.Context(), "2"); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	if len(a.annotations) != 0 {
		t.Errorf("%v is kept", a.annotations)
	}
	write("no event\n")
	if _, err := a.take(t.Context(), "3"); err == nil {
		t.Error("a line that is not an event is accepted")
	}
}
