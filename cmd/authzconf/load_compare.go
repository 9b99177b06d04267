package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports/load"
)

// newLoadCompare is "load compare".
func newLoadCompare() *cobra.Command {
	var margin, marginP99 float64
	var minPairs int
	var output string
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two saved load runs",
		Long: `Read the runs in two report folders (or run.json files) and say, variant by variant, how
much longer requests take in B than in A, with intervals, and whether that is
within the margin. Blocks of the same comparison, variant and server are paired. The
runs were not interleaved: what changed around them is part of the difference.

Exit codes: 0 all within the margin, 1 some variant is slower by more than the margin, 2 bad
usage or input, 3 inconclusive: too few pairs, an interval that crosses the
margin, or a run that was disturbed.`,
		Example: `  authzconf load --profile node-agent-steady --report-dir before
  authzconf load --profile node-agent-steady --report-dir after
  authzconf load compare before after --margin 0.05`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := load.ComparisonThresholds(margin, marginP99, minPairs)
			if err != nil {
				return err
			}
			if output != "text" && output != "markdown" && output != "json" {
				return fmt.Errorf("--output %q: expected text, markdown or json", output)
			}
			a, err := load.Load(args[0])
			if err != nil {
				return err
			}
			b, err := load.Load(args[1])
			if err != nil {
				return err
			}
			result, err := load.Compare(a, b, t)
			if err != nil {
				return fmt.Errorf("%s and %s cannot be compared: %w", args[0], args[1], err)
			}
			if err := printComparison(c.OutOrStdout(), &result, output); err != nil {
				return err
			}
			if code := result.Outcome.ExitCode(); code != exitPassed {
				return &exitError{code: code}
			}
			return nil
		},
	}
	c.Flags().Float64Var(&margin, "margin", 0.05, "part within which each p50 has to be the same, such as 0.05")
	c.Flags().Float64Var(&marginP99, "margin-p99", 0, "the same for the p99; 0: not judged")
	c.Flags().IntVar(&minPairs, "min-pairs", load.DefaultMinPairs, "pairs of blocks that a statement needs, at least 6")
	c.Flags().StringVarP(&output, "output", "o", "text", "text, markdown or json")
	return c
}

func printComparison(w io.Writer, r *load.Result, output string) error {
	switch output {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(r)
	case "markdown":
		text, err := load.ComparisonMarkdown(r)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	b := &strings.Builder{}
	for _, c := range r.Comparisons {
		fmt.Fprintf(b, "%s, %s\n  p50  %s\n  p99  %s\n  reviews per request: %.3f, then %.3f\n",
			printable(c.Name), count(c.Pairs, "pair"), printable(c.P50.String()), printable(c.P99.String()), c.ReviewsA, c.ReviewsB)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(b, "note: %s\n", printable(n))
	}
	for _, reason := range r.Reasons {
		fmt.Fprintf(b, "%s: %s\n", r.Outcome, printable(reason))
	}
	fmt.Fprintf(b, "outcome: %s\n", r.Outcome)
	_, err := io.WriteString(w, b.String())
	return err
}

// printable leaves out what would steer a terminal: names come from files.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '�'
		}
		return r
	}, s)
}
