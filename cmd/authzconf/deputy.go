package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/engine/matrix"
	"github.com/authzconf/authzconf/engine/target"
	"github.com/authzconf/authzconf/reports"
)

type deputyFlags struct {
	filedFlags
	options    deputy.Options
	kubernetes string
}

func newDeputy(flags *deputyFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "deputy",
		Short: "Check what a dashboard that impersonates its users relies on",
		Long: `Check, on local control planes, what a tool relies on that impersonates each of its
users: that self-subject reviews say what requests then do (preflight), that its own
audit log and the API server's name the same people under load (audit-logs), and that
nobody becomes somebody else through a tunnel (tunnel). Each with a proxy identity that
may impersonate by legacy impersonation, and by constrained. What scenarios can say
about it is in the folder periscope: authzconf run --focus '^periscope/'.

Exit codes: 0 everything holds, 1 something does not, 2 bad usage, 3 the environment
broke.`,
		Example: `  authzconf deputy
  authzconf deputy --parts preflight --pairs 3000 --seed 7 --report-dir out`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return flags.run(c) },
	}
	fl := c.Flags()
	fl.StringVar(&flags.kubernetes, "kubernetes", matrix.Newest(), "version to run on, of "+matrix.Known())
	fl.StringSliceVar(&flags.options.Impersonation, "impersonation", deputy.Impersonations(), "how the proxy identity may impersonate")
	fl.StringSliceVar(&flags.options.Parts, "parts", deputy.Parts(), "what to check")
	fl.IntVar(&flags.options.Pairs, "pairs", 1500, "questions of the pre-flight")
	fl.IntVar(&flags.options.Users, "users", 50, "people who send requests at once")
	fl.IntVar(&flags.options.Requests, "requests", 20, "requests of each, on each way")
	seedFlag(c, &flags.options.Seed, "grants and questions (default: random, printed)")
	flags.register(fl, "deputy.yaml and its evidence")
	return c
}

// check reads everything that can be wrong before anything is started.
func (f *deputyFlags) check(c *cobra.Command) (err error) {
	if err = f.options.Check(); err == nil {
		f.options.Target, err = localCell(c, f.kubernetes, target.AskOn)
	}
	return err
}

func (f *deputyFlags) run(c *cobra.Command) error {
	if err := f.check(c); err != nil {
		return err
	}
	if err := f.ready(&deputy.Folder); err != nil {
		return err
	}
	f.options.Progress = func(line string) { _, _ = fmt.Fprintln(c.ErrOrStderr(), line) }
	report, pieces, err := deputy.Run(c.Context(), f.options)
	if err != nil {
		return invalid(err)
	}
	for _, line := range report.Lines() {
		_, _ = fmt.Fprintln(c.OutOrStdout(), line)
	}
	_, _ = fmt.Fprintf(c.OutOrStdout(), "seed %d\n", report.Seed)
	if err := f.file(&deputy.Folder, report, pieces); err != nil {
		return err
	}
	if f.reportDir != "" {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "report: %s\n", filepath.Join(f.reportDir, "deputy.yaml"))
	}
	if report.Problem != "" {
		return invalid(errors.New(report.Problem))
	}
	return failedIf(report.Failed())
}

// deputyAgain is the report that the evidence of one gives.
func deputyAgain(r *deputy.Report, p *reports.Pieces, _ *verifyFlags) (*deputy.Report, error) {
	var f deputyFlags
	c := newDeputy(&f)
	if err := reread(c, r.Command, "deputy"); err != nil {
		return nil, err
	}
	reseed(c, &f.options.Seed, r.Seed)
	if err := f.check(c); err != nil {
		return nil, err
	}
	return deputy.Judge(f.options, p)
}
