package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

// printSummary is what a person sees at the end of a run: a row per cell and
// level, what did not pass, and the outcome.
func printSummary(w io.Writer, r *reports.ConformanceReport) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "cell\tlevel\tpassed\tfailed\tknown failing\tinvalid\tnot supported\tskipped\tnot applicable\t")
	for _, c := range r.Cells {
		for _, level := range reports.Levels() {
			n, ok := c.Summary[level]
			if !ok {
				continue
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Name, level,
				n.Passed, n.Failed, n.KnownFailing, n.Invalid, n.NotSupported, n.Skipped, n.NotApplicable)
		}
	}
	_ = t.Flush()
	for _, c := range r.Cells {
		for _, result := range c.Results {
			if result.Verdict == verdicts.Failed || result.Verdict == verdicts.Invalid {
				_, _ = fmt.Fprintf(w, "%s: %s %s (%s): %s\n", result.Verdict, c.Name, result.Scenario, result.Blame, result.Reason)
			}
		}
	}
	_, _ = fmt.Fprintf(w, "outcome: %s\n", r.Outcome.Result)
	for _, why := range r.Outcome.Reasons {
		_, _ = fmt.Fprintf(w, "  because %s\n", why)
	}
	for _, note := range r.Outcome.Notes {
		_, _ = fmt.Fprintf(w, "  note: %s\n", note)
	}
}
