package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	write(t, filepath.Join(dir, "plain.json"), `[
		{"Mode":"build","Package":"github.com/authzconf/authzconf/verdicts","CmdUser":1500000000,"CmdSys":500000000},
		{"Mode":"link","Package":"github.com/authzconf/authzconf/verdicts.test","CmdUser":3000000000},
		{"Mode":"test run","Package":"github.com/authzconf/authzconf/verdicts","TimeStart":"2026-11-27T10:00:00Z","TimeDone":"2026-11-27T10:00:05Z"}]`)
	write(t, filepath.Join(dir, "race.json"), `[{"Mode":"build","Package":"github.com/authzconf/authzconf/loadgen","CmdUser":1000000000}]`)
	write(t, filepath.Join(dir, "starts", "verdicts.txt"), "2.5\n3\n")
	write(t, filepath.Join(dir, "times.txt"), "verdicts 4.000\n")
	var out bytes.Buffer
	if err := run([]string{"tests", dir}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| compiling | 3.0 | 30 % |", "| linking | 3.0 | 30 % |", "API servers that they start | 4.0 | 40 % |",
		"2 control planes were started, and ready after a mean of 2.8 s.", "| verdicts | 4.0 | 100 % | 5.0 | 3.0 | 2 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestRunTimed checks that the processor time of a program and its control planes are kept with its package, and that it fails
// as the program does.
func TestRunTimed(t *testing.T) {
	profile := t.TempDir()
	if err := run([]string{"run", profile, "sh", "-c", `echo 2.5 >>"$AUTHZCONF_STARTS"`}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	var failed *exec.ExitError
	if err := run([]string{"run", profile, "sh", "-c", "exit 7"}, &bytes.Buffer{}); !errors.As(err, &failed) || failed.ExitCode() != 7 {
		t.Errorf("%v, want exit code 7", err)
	}
	starts, err := os.ReadFile(filepath.Join(profile, "starts", "ci", "profile.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if string(starts) != "2.5\n" {
		t.Errorf("%q", starts)
	}
	kept, err := os.ReadFile(filepath.Join(profile, "times.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^(ci/profile \d+\.\d{3}\n){2}$`).Match(kept) {
		t.Errorf("%q", kept)
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
		"a folder without parts":  {[]string{"tests", t.TempDir()}, "expected one of each part"},
		"actions that are none":   {[]string{"tests", folderOf(t, "race.json", "no JSON")}, "-debug-actiongraph"},
		"starts that are none":    {[]string{"tests", folderOf(t, "starts/verdicts.txt", "never\n")}, `verdicts.txt:1: "never" ends with no number`},
		"times that are none":     {[]string{"tests", folderOf(t, "times.txt", "verdicts\n")}, `times.txt:1: "verdicts": expected 2 words`},
		"a program that is none":  {[]string{"run", text, filepath.Join(text, "none")}, "not a directory"},
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

// folderOf returns a folder of a profile in which one file has a text.
func folderOf(t *testing.T, name, text string) (folder string) {
	folder = t.TempDir()
	write(t, filepath.Join(folder, "plain.json"), `[{"Mode":"link","Package":"github.com/authzconf/authzconf/verdicts.test"}]`)
	write(t, filepath.Join(folder, name), text)
	return folder
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
