package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
)

func newVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Recompute every verdict of a report from its evidence",
		Long: `Read a report folder, check that no file was changed, added or removed since it
was written, recompute every verdict, summary and the outcome from the raw
evidence, and fail on any difference. No server is needed.`,
		Example: `  authzconf run --gate both --report-dir report
  authzconf verify report`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			builtin, err := scenarios.Load(scenarios.FS, fixtures.FS)
			if err != nil {
				return err
			}
			v, err := reports.Verify(args[0], reports.VerifyOptions{Builtin: builtin, SuiteVersion: suiteVersion()})
			if err != nil {
				return err
			}
			for _, note := range v.Notes {
				_, _ = fmt.Fprintf(c.OutOrStdout(), "note: %s\n", note)
			}
			for _, d := range v.Differences {
				_, _ = fmt.Fprintf(c.OutOrStdout(), "differs: %s\n", d)
			}
			if !v.OK() {
				return &exitError{code: exitFailed, err: fmt.Errorf("the report does not follow from its evidence: %s", count(len(v.Differences), "difference"))}
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "verified: %s recomputed from their evidence, all the same\n", count(v.Verdicts, "verdict"))
			return err
		},
	}
}
