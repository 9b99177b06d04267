// Package spec says verdicts in the words of Ginkgo.
package spec

import (
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2"

	"github.com/authzconf/authzconf/verdicts"
)

// Report turns a verdict into Ginkgo's terms.
func Report(r verdicts.Result) {
	switch r.Verdict {
	case verdicts.Passed:
	case verdicts.Skipped, verdicts.NotSupported:
		ginkgo.Skip(r.Reason)
	default:
		var lines strings.Builder
		fmt.Fprintf(&lines, "%s (blame: %s): %s", r.Verdict, r.Blame, r.Reason)
		for _, d := range r.Differences {
			fmt.Fprintf(&lines, "\nstep %d: %s\n  want %s\n  got  %s", d.Step, d.Field, d.Want, d.Got)
		}
		ginkgo.Fail(lines.String())
	}
}
