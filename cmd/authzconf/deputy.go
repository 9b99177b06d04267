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
	proxy      deputy.Proxy
	kubernetes string
}

func newDeputy(flags *deputyFlags) *cobra.Command {
	c := &cobra.Command{
		Use:  "deputy",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return flags.run(c) },
	}
	fl := c.Flags()
	fl.StringVar(&flags.kubernetes, "kubernetes", matrix.Newest(), "version to run on, of "+matrix.Known())
	fl.StringSliceVar(&flags.options.Impersonation, "impersonation", deputy.Impersonations(), "how the proxy identity may impersonate")
	fl.StringSliceVar(&flags.options.Parts, "parts", deputy.Parts(), "what to check")
	fl.IntVar(&flags.options.Pairs, "pairs", 1500, "questions of the pre-flight")
	fl.IntVar(&flags.options.Users, "users", 50, "people who send requests at once")
	fl.IntVar(&flags.options.Requests, "requests", 20, "requests of each on each way, and as many that try to be somebody else")
	seedFlag(c, &flags.options.Seed, "grants and questions (default: random, printed)")
	flags.registerProxy(c)
	flags.register(fl, "deputy.yaml, report.html, junit.xml, summary.md and evidence/")
	return c
}

// check reads everything that can be wrong before anything is started. With read, the files that flags name as well.
func (f *deputyFlags) check(c *cobra.Command, read bool) (err error) {
	if err = f.checkProxy(c); err == nil {
		err = f.options.Check(read)
	}
	if err == nil {
		f.options.Target, err = localCell(c, f.kubernetes, target.AskOn)
	}
	return err
}

func (f *deputyFlags) run(c *cobra.Command) error {
	if err := f.check(c, true); err != nil {
		return err
	}
	called = withoutSecrets(called)
	if err := f.ready(&deputy.Folder); err != nil {
		return err
	}
	f.options.Progress = func(line string) { _, _ = fmt.Fprintln(c.ErrOrStderr(), line) }
	report, pieces, err := deputy.Run(c.Context(), f.options)
	if err != nil {
		return invalid(err)
	}
	if err := render(c.OutOrStdout(), "deputy", report); err != nil {
		return err
	}
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
	if err := f.check(c, false); err != nil {
		return nil, err
	}
	return deputy.Judge(f.options, p)
}
