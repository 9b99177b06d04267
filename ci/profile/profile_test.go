package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindPart(t *testing.T) {
	for name, c := range map[string]struct {
		functions []string
		want      string
	}{
		"a package of ours":                         {[]string{"crypto/tls.x", module + "engine/recorder.(*Recorder).serve", module + "cmd/authzconf.main"}, "recorder"},
		"the innermost of two packages of ours":     {[]string{module + "verdicts.Judge", module + "engine/replay.x"}, "judge"},
		"a connection that a server serves":         {[]string{"crypto/tls.x", "net/http.(*conn).serve"}, "recorder"},
		"a connection of a client":                  {[]string{"net/http.(*persistConn).readLoop"}, "provisioning, sending, observing"},
		"the garbage collector":                     {[]string{"runtime.scanobject", "runtime.gcBgMarkWorker"}, "garbage collection"},
		"a package of ours that belongs to no part": {[]string{module + "cmd/authzconf.main"}, "everything else"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := findPart(c.functions); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestDescribeTests(t *testing.T) {
	dir := t.TempDir()
	actions, starts := filepath.Join(dir, "actions"), filepath.Join(dir, "starts")
	write(t, actions, `[
		{"Mode":"build","Package":"github.com/authzconf/authzconf/verdicts","CmdUser":1500000000,"CmdSys":500000000},
		{"Mode":"link","Package":"github.com/authzconf/authzconf/verdicts.test","CmdUser":3000000000},
		{"Mode":"test run","Package":"github.com/authzconf/authzconf/verdicts","TimeStart":"2026-11-27T10:00:00Z","TimeDone":"2026-11-27T10:00:05Z"}]`)
	write(t, starts, "2.5\n3\n")
	var out bytes.Buffer
	if err := run([]string{"tests", actions, starts}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| compiling (processor time) | 2.0 | 20 % |", "| linking (processor time) | 3.0 | 30 % |", "5.5 s until 2 control planes were ready | 5.0 | 50 % |", "| verdicts (linked in 3.0 s) | 5.0 | 100 % |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestBadInput(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	write(t, text, "no JSON\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no arguments":            {nil, "usage: profile"},
		"another word":            {[]string{"load", "x", "y"}, "is not a call"},
		"actions that are none":   {[]string{"tests", text}, "-debug-actiongraph"},
		"starts that are none":    {[]string{"tests", actionsOfNothing(t), text}, `text:1: "no JSON" is not a number of seconds`},
		"a folder without report": {[]string{"conformance", t.TempDir(), text}, "report"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(c.args, &bytes.Buffer{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func actionsOfNothing(t *testing.T) (path string) {
	path = filepath.Join(t.TempDir(), "actions")
	write(t, path, "[]")
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
