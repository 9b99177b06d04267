package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/reports/load"
)

// newLoadVerify is "load verify".
func newLoadVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Judge a saved load run again",
		Long: `Read the run in a load report's folder, judge it again by the thresholds in its
report, and fail if the folder says anything else. No server is needed.

Exit codes: 0 the report follows from its run, whatever its outcome, 1 it does
not, 2 there is no load report.`,
		Example: `  authzconf load --profile node-agent-steady --report-dir out
  authzconf load verify out`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return verifyLoad(c, args[0]) },
	}
}

// verifyLoad judges the run of a load report again.
func verifyLoad(c *cobra.Command, path string) error {
	result, differences, err := load.Verify(path, suiteVersion())
	if err != nil {
		return err
	}
	for _, d := range differences {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "differs: %s\n", printable(d))
	}
	if len(differences) > 0 {
		return &exitError{code: exitFailed, err: fmt.Errorf("the report does not follow from its run: %s", count(len(differences), "difference"))}
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "verified: judged again, the outcome is %s\n", result.Outcome)
	return err
}
