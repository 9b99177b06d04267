package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// want fails a script that calls a command wrongly.
func want(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// needsControlPlane skips the script with -short. Otherwise it tells the programs that the script starts where the real
// etcd and kube-apiserver are.
func needsControlPlane(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 0, "needs-control-plane")
	if testing.Short() {
		worldOf(ts).t.Skip("starts control planes")
	}
	found, err := programs()
	ts.Check(err)
	ts.Setenv("TEST_ASSET_ETCD", found.Etcd)
	ts.Setenv("TEST_ASSET_KUBE_APISERVER", found.KubeAPIServer)
}

// exits runs a command that has to end with an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) >= 2, "exits CODE program [args...]")
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		got = status(ended.ProcessState)
	} else {
		ts.Check(err)
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// status is an exit code, or the signal that ended a process.
func status(state *os.ProcessState) string {
	if state.ExitCode() >= 0 {
		return strconv.Itoa(state.ExitCode())
	}
	return strings.TrimPrefix(state.String(), "signal: ")
}

// edit replaces a text in a file, which a pattern may name.
func edit(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 3, "edit FILE OLD NEW")
	files, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(files) != 1 {
		ts.Fatalf("%s names %d files", args[0], len(files))
	}
	old := ts.ReadFile(files[0])
	if !strings.Contains(old, args[1]) {
		ts.Fatalf("%s does not contain %q", files[0], args[1])
	}
	ts.Check(os.WriteFile(files[0], []byte(strings.ReplaceAll(old, args[1], args[2])), 0o644))
}

// grow makes a file a number of bytes long.
func grow(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 2, "grow FILE BYTES")
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), size))
}

// occupy listens on a port until the script ends, and puts it into a variable.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "occupy VARIABLE")
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = listener.Close() })
	ts.Setenv(args[0], strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
}

// secret matches the beginnings of JSON Web Tokens, of the header that carries them, and of keys.
var secret = regexp.MustCompile(`eyJ|Bearer |PRIVATE KEY`)

// noSecrets searches all files of a folder, and the last output.
func noSecrets(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, !neg && len(args) == 1, "no-secrets FOLDER")
	files := []string{"stdout", "stderr"}
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	ts.Logf("looking through %d files", len(files))
	for _, f := range files {
		if at := secret.FindStringIndex(ts.ReadFile(f)); at != nil {
			ts.Fatalf("%s holds a credential at byte %d", f, at[0])
		}
	}
	if len(files) < 8 { // the report's four, and evidence and scenarios
		ts.Fatalf("%s holds no report: %v", args[0], files)
	}
}
