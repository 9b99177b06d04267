package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports"
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
