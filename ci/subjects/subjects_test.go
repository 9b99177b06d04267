package subjects

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSubjects tries each subject with the authzconf that AUTHZCONF names, and verifies the reports. What is ours has
// the verdict that it was written for; for the parts of others any verdict is right.
func TestSubjects(t *testing.T) {
	authzconf := os.Getenv("AUTHZCONF")
	if authzconf == "" {
		t.Skip("AUTHZCONF names no program: make subjects")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		code  int
		finds string
	}{
		"careful":       {0, ""},
		"director":      {1, "field: Connection names the user got: it was made as the proxy itself"},
		"rewrite":       {1, `field: system:masters got: it was made as "alice@corp" with the group "system:masters"`},
		"own-rights":    {1, "field: control got: it was made as the proxy itself"},
		"upgrade-aware": {-1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			report := filepath.Join(reports(t), name)
			out, code := run(
				t,
				authzconf,
				"deputy",
				"--proxy",
				"http://"+address,
				"--proxy-command",
				fmt.Sprintf("exec %s %s %s", program, name, address),
				"--identity",
				"alice@corp=header:"+userHeader+": alice@corp",
				"--identity",
				"bob@corp=header:"+userHeader+": bob@corp",
				"--pairs",
				"200",
				"--seed",
				"5",
				"--report-dir",
				report,
			)
			isExpected := code == want.code || want.code < 0
			if !isExpected || code > 1 {
				t.Errorf("exit code %d, and it should be %d:\n%s", code, want.code, out)
			}
			text, err := os.ReadFile(filepath.Join(report, "report.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if found := strings.Join(strings.Fields(string(text)), " "); !strings.Contains(found, want.finds) {
				t.Errorf("%q is not in the report:\n%s", want.finds, out)
			}
			if out, code := run(t, authzconf, "verify", report); code != 0 {
				t.Errorf("the report does not verify: %s", out)
			}
		})
	}
}

// reports is where the reports go: SUBJECTS, or a folder that is removed.
func reports(t *testing.T) string {
	if dir := os.Getenv("SUBJECTS"); dir != "" {
		return dir
	}
	return t.TempDir()
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

func run(t *testing.T, name string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
