package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/verdicts"
)

func newReport() *cobra.Command {
	c := &cobra.Command{
		Use:  "report",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newReportDiff(), newReportPRR())
	return c
}

func newReportDiff() *cobra.Command {
	var whole bool
	c := &cobra.Command{
		Use:  "diff FOLDER[:CELL] FOLDER[:CELL]",
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := reports.Diff(reports.ParseSide(args[0]), reports.ParseSide(args[1]))
			if err != nil {
				return err
			}
			printDiff(c.OutOrStdout(), d, whole)
			return failedIf(len(d.Changed) > 0)
		},
	}
	c.Flags().BoolVar(&whole, "whole", false, "also print the lines that are the same")
	return c
}

func newReportPRR() *cobra.Command {
	return &cobra.Command{
		Use:  "prr FOLDER",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := reports.Verify(args[0], reports.VerifyOptions{SuiteVersion: suiteVersion()})
			if err != nil {
				return err
			}
			text, err := reports.PRR(v)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
}

func printDiff(w io.Writer, d *reports.BehaviourDiff, whole bool) {
	for _, s := range d.Changed {
		_, _ = fmt.Fprintln(w, s.Scenario)
		if s.A != s.B {
			_, _ = fmt.Fprintf(w, "  %s on %s, %s on %s\n", s.A, d.A, s.B, d.B)
		}
		for _, l := range s.Lines {
			if whole || !strings.HasPrefix(l, "  ") {
				_, _ = fmt.Fprintln(w, "  "+l)
			}
		}
	}
	_, _ = fmt.Fprintf(w, "%d scenarios ran on both, %d of them differ; %d ran only on %s (-), %d only on %s (+)\n",
		d.Compared, len(d.Changed), len(d.OnlyA), d.A, len(d.OnlyB), d.B)
}

// printSummary is what a person sees at the end of a run: a row per cell and level, what did not pass, and the
// outcome.
func printSummary(w io.Writer, r *reports.ConformanceReport) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "cell\tlevel\tpassed\tfailed\tknown failing\tinvalid\tnot supported\tskipped\tnot applicable\t")
	for _, c := range r.Cells {
		for _, n := range c.CountRows(len(r.Cells)) {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Name, n.Level,
				n.Passed, n.Failed, n.KnownFailing, n.Invalid, n.NotSupported, n.Skipped, n.NotApplicable)
		}
	}
	_ = t.Flush()
	printOutcome(w, r)
}

// concludeRun says where the report is, and turns its outcome into the exit code. unwritten is why there is no
// report: what a run has found is printed all the same.
func concludeRun(w io.Writer, r *reports.ConformanceReport, dir string, unwritten error) error {
	switch {
	case unwritten != nil:
		return unwritten
	case dir != "":
		_, _ = fmt.Fprintf(w, "report: %s\ncheck it: authzconf verify %s\n", filepath.Join(dir, "report.html"), dir)
	}
	return exitWith(r.Outcome.ExitCode)
}

// printOutcome prints what did not pass, and the outcome with its reasons.
func printOutcome(w io.Writer, r *reports.ConformanceReport) {
	for _, c := range r.Cells {
		printProblems(w, c)
	}
	_, _ = fmt.Fprintf(w, "outcome: %s\n", r.Outcome.Line())
	for _, why := range r.Outcome.Reasons {
		_, _ = fmt.Fprintf(w, "  because %s\n", why)
	}
	for _, note := range r.Outcome.Notes {
		_, _ = fmt.Fprintf(w, "  note: %s\n", note)
	}
}

// printProblems prints what did not pass on a cell. Results with the same reason are one paragraph: when a
// target dies, hundreds have it, with its log.
func printProblems(w io.Writer, c reports.Cell) {
	type paragraph struct{ what, reason string }
	same := map[paragraph][]verdicts.Result{}
	var order []paragraph
	for _, result := range c.Results {
		if result.Verdict != verdicts.Failed && result.Verdict != verdicts.Invalid {
			continue
		}
		p := paragraph{string(result.Verdict), result.Reason}
		if result.KnownFailing != "" {
			p.what = "known failing"
		}
		if same[p] == nil {
			order = append(order, p)
		}
		same[p] = append(same[p], result)
	}
	for _, p := range order {
		first, more := same[p][0], ""
		if n := len(same[p]) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		_, _ = fmt.Fprintf(w, "%s: %s %s%s (%s): %s\n", p.what, c.Name, first.Scenario, more, first.Blame, p.reason)
		for _, d := range first.Differences[min(1, len(first.Differences)):] { // the first is the reason
			_, _ = fmt.Fprintf(w, "  step %d: %s: want %s, got %s\n", d.Step, d.Field, d.Want, d.Got)
		}
	}
}
