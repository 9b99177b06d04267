// Command profile says where the time of `make conformance` and of `make test` goes, as tables of Markdown:
//
//	profile conformance REPORT CPU-PROFILE
//	profile tests FOLDER
//	profile run FOLDER PROGRAM [ARGUMENT...]
//
// `make profile` and `make profile-tests` call it. REPORT is the folder of a report, and CPU-PROFILE what authzconf wrote to the
// file that AUTHZCONF_CPU_PROFILE names. FOLDER has what `go test -debug-actiongraph` wrote of each part of the tests (*.json),
// the processor time of each package (times.txt), and what the control planes of each package wrote to the file that
// AUTHZCONF_STARTS names (starts/PACKAGE.txt). The last two are written by `profile run`, which `go test -exec` calls with the
// program of each package.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

const usageText = "usage: profile conformance REPORT CPU-PROFILE, profile tests FOLDER, or profile run FOLDER PROGRAM [ARGUMENT...]"

func main() {
	err := run(os.Args[1:], os.Stdout)
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed): // a test, which has said why
		os.Exit(max(1, failed.ExitCode()))
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "conformance":
		return describeConformance(args[1], args[2], out)
	case len(args) == 2 && args[0] == "tests":
		return describeTests(args[1], out)
	case len(args) >= 3 && args[0] == "run":
		return runTimed(args[1], args[2:])
	default:
		return fmt.Errorf("%q is not a call of this program\n%s", strings.Join(args, " "), usageText)
	}
}

// row is what something took, in seconds.
type row struct {
	name    string
	seconds float64
}

// printTable prints rows with their share of a whole.
func printTable(out io.Writer, title string, rows []row, whole float64) error {
	_, err := fmt.Fprintf(out, "| %s | seconds | share |\n|---|--:|--:|\n", title)
	for _, r := range rows {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "| %s | %.1f | %.0f %% |\n", r.name, r.seconds, 100*r.seconds/max(whole, 1e-9))
	}
	return err
}
