package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports/pages"
	"github.com/authzconf/authzconf/suites/labels"
)

// productCommand returns the command that runs a product.
func productCommand(p product.Product) *cobra.Command {
	words := strings.Fields(p.Command)
	c := commandWith(words[len(words)-1]+p.Arguments, nil)
	line := product.NewCommandLine(p, c.Flags(), labels.Filter)
	c.RunE = func(c *cobra.Command, args []string) error { return runProduct(c, line, args) }
	return c
}

// runProduct reads the command line, runs the plan, writes the report, prints the result, and returns the outcome as an
// exit code.
func runProduct(c *cobra.Command, line *product.CommandLine, args []string) error {
	invocation := product.NewInvocation(args, suiteVersion(), c.ErrOrStderr())
	prepared, err := line.Prepare(invocation)
	if unavailable, ok := errors.AsType[*product.Unavailable](err); ok {
		return invalid(unavailable)
	}
	if err != nil {
		return err
	}
	if line.Options.DryRun {
		return writeDryRun(c.OutOrStdout(), prepared.Plan, line.Options.Verbose)
	}
	output, err := product.OpenOutput(line.Options)
	if err != nil {
		return err
	}
	show := newProductProgress(c.ErrOrStderr(), prepared.Plan.Cases(), line.Options.Verbose)
	result, err := product.Execute(c.Context(), product.Run{
		PreparedRun: prepared, Invocation: invocation, Command: commandLine, Say: show.say, Status: show.showStatus, Judged: show.addResult,
	})
	show.end()
	if err != nil {
		return invalid(err)
	}
	// The findings are printed even if they cannot be written.
	unwritten := output.Save(result)
	summary := pages.SummaryOptions{}
	if unwritten == nil {
		summary.Folder = line.Options.ReportDir
	}
	if err := pages.WriteSummary(c.OutOrStdout(), result.Report, summary); err != nil {
		return invalid(err)
	}
	if unwritten != nil {
		return invalid(unwritten)
	}
	return exitWith(result.Report.Outcome.ExitCode)
}

// writeDryRun writes what a plan says about itself, and its cases.
func writeDryRun(w io.Writer, p product.Plan, verbose bool) error {
	if d, ok := p.(product.Describer); ok {
		if err := d.Describe(w); err != nil {
			return err
		}
	}
	return writePlan(w, p, verbose)
}
