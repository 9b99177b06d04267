// Command profile says where the time of `make conformance` and of `make test` goes, as tables of Markdown:
//
//	profile conformance REPORT CPU-PROFILE
//	profile tests ACTIONS [STARTS]
//
// `make profile` and `make profile-tests` call it. REPORT is the folder of a report, CPU-PROFILE what authzconf wrote to the
// file that AUTHZCONF_CPU_PROFILE names, ACTIONS what `go test -debug-actiongraph` wrote, and STARTS what control planes wrote
// to the file that AUTHZCONF_STARTS names.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const usageText = "usage: profile conformance REPORT CPU-PROFILE, or profile tests ACTIONS [STARTS]"

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "conformance":
		return describeConformance(args[1], args[2], out)
	case len(args) == 2 && args[0] == "tests":
		return describeTests(args[1], "", out)
	case len(args) == 3 && args[0] == "tests":
		return describeTests(args[1], args[2], out)
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
