package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/suites/labels"
)

// planAgain reads a recorded command line as the command does that it starts. Nothing else happens.
func planAgain(words []string) (*product.CommandLine, []string, error) {
	for _, p := range products() {
		command := strings.Fields(p.Command)
		if len(words) < len(command) || strings.Join(words[:len(command)], " ") != p.Command {
			continue
		}
		flags := pflag.NewFlagSet(p.Command, pflag.ContinueOnError)
		flags.SetOutput(io.Discard)
		line := product.NewCommandLine(p, flags, labels.Filter)
		if err := flags.Parse(words[len(command):]); err != nil {
			return nil, nil, err
		}
		return line, flags.Args(), nil
	}
	return nil, nil, fmt.Errorf("no product is started by %q", strings.Join(words, " "))
}

// verifyReport verifies the report of any product, and says whose signature it carries. scenarios is the folder of those to
// judge by, empty for the built-in ones.
func verifyReport(c *cobra.Command, dir, scenarios string, keys []*record.Key) error {
	read, closeFolder, err := reports.ReadFolder(dir)
	if err != nil {
		return err
	}
	defer closeFolder()
	v, err := product.Verify(read, func(words []string) (*product.CommandLine, []string, error) {
		line, args, err := planAgain(words)
		if err == nil {
			line.Scenarios = scenarios
		}
		return line, args, err
	}, c.ErrOrStderr())
	if err != nil {
		return err
	}
	if v.Report.SuiteVersion != suiteVersion() {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "note: it was made by authzconf %s, and this is %s\n", v.Report.SuiteVersion, suiteVersion())
	}
	signature, err := read(reports.SignatureFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	signed, wrong := record.CheckReport(keys, signature, reports.ReportFile, v.Marker, v.Report.Outcome)
	what := "the report does not follow from its evidence"
	if len(v.Differences) == 0 {
		what = "the report is not signed as demanded"
	}
	if all := append(v.Differences, wrong...); len(all) > 0 {
		return differs(c, all, what)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "verified: %s recomputed from the evidence, all the same\nsignature: %s\n", reports.Plural(v.Cases, "verdict"), signed)
	return err
}
