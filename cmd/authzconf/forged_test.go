package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// text changes the text of a piece of evidence, or of the marker, whatever that makes of it; packed is what it is packed to.
func (f folder) text(name string, change func(string) string, packed ...string) {
	f.t.Helper()
	data := f.read(name)
	if !strings.HasSuffix(name, ".gz") {
		f.put(name, []byte(change(string(data))))
		return
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = io.ReadAll(r)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	var b bytes.Buffer
	for _, member := range append([]string{change(string(data))}, packed...) {
		w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		if err == nil {
			_, err = w.Write([]byte(member))
		}
		if err != nil || w.Close() != nil {
			f.t.Fatal("it cannot be packed")
		}
	}
	f.put(name, b.Bytes())
}

// instead has something else than a file where a file was.
func (f folder) instead(name string, put func(path string) error) {
	f.t.Helper()
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	if err := os.Remove(path); err != nil {
		f.t.Fatal(err)
	}
	if err := put(path); err != nil {
		f.t.Fatal(err)
	}
}

func pipe(path string) error { return syscall.Mkfifo(path, 0o600) }

// TestRecordedSaysOneThing has files that two readers could read differently: a key twice or in other capitals, and
// something behind the end. All are refused, and verify neither waits nor runs out of memory.
func TestRecordedSaysOneThing(t *testing.T) {
	same := func(s string) string { return s }
	for way, c := range map[string]struct {
		do   func(f folder, evidence string)
		want string
	}{
		"a key twice": {func(f folder, e string) {
			f.text(e, func(s string) string { return `{"target":null,"cases":null,` + s[1:] })
		}, `duplicate field "`},
		"a key in capitals": {func(f folder, e string) {
			f.text(e, func(s string) string { return `{"Cases":null,"Target":null,` + s[1:] })
		}, `unknown field "`},
		"a bracket behind the end": {func(f folder, e string) {
			f.text(e, func(s string) string { return s + "}" })
		}, "after top-level value"},
		"a second member":     {func(f folder, e string) { f.text(e, same, " ") }, "there is something behind its end"},
		"a gigabyte":          {func(f folder, e string) { f.text(e, func(s string) string { return s + strings.Repeat(" ", 65<<20) }) }, "it is larger than"},
		"a pipe for evidence": {func(f folder, e string) { f.instead(e, pipe) }, "it is not a regular file"},
		"a comment": {func(f folder, _ string) {
			f.text(f.marker, func(s string) string {
				if strings.HasPrefix(s, "{") { // JSON has none, but blanks
					return s + " "
				}
				return s + "# outcome: everything was seen\n"
			})
		}, "it says the same, but not as authzconf writes it"},
		"the outcome twice":      {func(f folder, _ string) { f.text(f.marker, headed("outcome")) }, "outcome"},
		"the outcome in capital": {func(f folder, _ string) { f.text(f.marker, headed("Outcome")) }, `unknown field "Outcome"`},
		"a second document": {func(f folder, _ string) {
			f.text(f.marker, func(s string) string { return s + "\n---\noutcome: failed\n" })
		}, ": "},
		"an object behind the end": {func(f folder, _ string) {
			f.text(f.marker, func(s string) string { return s + `{"outcome":"failed"}` })
		}, ": "},
	} {
		for name, evidence := range map[string]string{"explore": batchFile} {
			t.Run(name+"/"+way, func(t *testing.T) {
				f := recordedFolder(t, name)
				c.do(f, evidence)
				if out := f.run(exitFailed, "verify", f.dir); !strings.Contains(out, c.want) || strings.Contains(out, "verified") {
					t.Errorf("printed %s, without %q", out, c.want)
				}
			})
		}
	}
	for what, put := range map[string]func(path string) error{"pipe": pipe, "device": func(path string) error { return os.Symlink("/dev/zero", path) }} {
		f := recordedFolder(t, "explore")
		f.instead(f.marker, put)
		if out := f.run(exitUsage, "verify", f.dir); strings.Contains(out, "verified") {
			t.Errorf("a %s as the report: %s", what, out)
		}
	}
}

// headed puts a field before the others, in YAML and in JSON.
func headed(field string) func(string) string {
	return func(s string) string {
		if strings.HasPrefix(s, "{") {
			return `{"` + field + `": "failed",` + s[1:]
		}
		return field + ": failed\n" + s
	}
}
