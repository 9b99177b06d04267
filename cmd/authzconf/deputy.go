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
		Use:   "deputy",
		Short: "Check who arrives when a proxy or dashboard acts for its users",
		Long: `Check what a tool relies on that impersonates each of its users, on local control
planes and the reference deputy: that self-subject reviews say what requests then do
(preflight), that its own audit log and the API server's name the same people under load
(audit-logs), that nobody becomes somebody else by about 90 attacks (attacks: headers in
every spelling, Connection, repeated and smuggled requests, HTTP/2, upgrades, paths), and
that what streams does (tunnel). What scenarios can say about it is in the folder
periscope: authzconf run --focus '^periscope/'.

With --proxy the same is tried on a proxy or dashboard of yours. Say how at least two
people are known there, and what is behind it: --proxy-command starts it with KUBECONFIG
for a local control plane, on which it may impersonate everybody; or --kubeconfig and
--audit-log name a cluster and proxy that run. Each request is judged by who arrives in
the audit log: the person or nobody is right, anybody else or the proxy itself is not.

Exit codes: 0 everything holds, 1 something does not, 2 bad usage (a proxy that is not
there, answers HTML or a redirect, does not know an identity), 3 the environment broke,
or the audit log does not show what was sent: nothing is judged then.`,
		Example: `  authzconf deputy
  authzconf deputy --parts preflight --pairs 3000 --seed 7 --report-dir out
  authzconf deputy --proxy http://127.0.0.1:8001 --proxy-command './my-proxy --port 8001' \
    --identity 'alice=header:X-Forwarded-User: alice' --identity 'bob=header:X-Forwarded-User: bob'
  authzconf deputy --proxy https://dashboard.example --kubeconfig admin.conf --audit-log audit.log \
    --identity alice@corp=token:alice.jwt --identity bob@corp=cookie:session=9c1f`,
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
	if err := f.check(c, false); err != nil {
		return nil, err
	}
	return deputy.Judge(f.options, p)
}
