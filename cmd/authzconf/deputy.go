package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/conformance/matrix"
	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/reports"
)

type deputyFlags struct {
	filedFlags
	options    deputy.Options
	proxy      deputy.Proxy
	kubernetes string
}

func newDeputy(flags *deputyFlags) *cobra.Command {
	c := plainCommand("deputy", flags.run)
	fl := c.Flags()
	fl.StringVar(&flags.kubernetes, "kubernetes", matrix.Newest(), "version to run on, of "+matrix.Known())
	programFlags(fl)
	fl.StringSliceVar(&flags.options.Impersonation, "impersonation", deputy.Impersonations(), "how the proxy identity may impersonate")
	fl.StringSliceVar(&flags.options.Parts, "parts", deputy.Parts(), "what to check, of what there is")
	fl.IntVar(&flags.options.Pairs, "pairs", 1500, "questions of the pre-flight")
	fl.IntVar(&flags.options.Users, "users", 50, "people who send requests at once")
	fl.IntVar(&flags.options.Requests, "requests", 20, "requests of each on each way, and as many that try to be somebody else")
	seedFlag(c, &flags.options.Seed, "grants and questions (default: random, printed)")
	fl.StringVar(&flags.proxy.URL, "proxy", "", "URL of a proxy that acts for people, which is tried in place of the references")
	flags.registerProxy(fl)
	flags.register(fl, "deputy.yaml, report.html, junit.xml, summary.md and evidence/")
	return c
}

// check reads everything that can be wrong before anything is started. With read, the files that flags name as well.
func (f *deputyFlags) check(c *cobra.Command, read bool) (err error) {
	f.useProxy(c.Flags())
	if err = f.options.Check(read); err == nil {
		f.options.Target, err = localCell(c, f.kubernetes, server.AskOn)
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

func (f *deputyFlags) again(c *cobra.Command, r *deputy.Report, p *reports.Pieces, _ *verifyFlags) (*deputy.Report, error) {
	reseed(c, &f.options.Seed, r.Seed)
	if err := f.check(c, false); err != nil {
		return nil, err
	}
	return deputy.Judge(f.options, p)
}

func (f *deputyFlags) registerProxy(fl *pflag.FlagSet) {
	p := &f.proxy
	fl.StringArrayVar(&p.Identities, "identity", nil, "NAME=header:HEADER: VALUE, =token:FILE, =cookie:COOKIE=VALUE or =client-cert:CERT,KEY: who should arrive, and what the proxy knows that person by (repeatable, at least two people; NAME[GROUP,GROUP] has groups; @FILE in place of a value of header and cookie)")
	fl.StringVar(&p.Command, "proxy-command", "", "shell command that starts the proxy, with KUBECONFIG for a local control plane")
	fl.StringVar(&p.Kubeconfig, "kubeconfig", "", "the cluster behind a proxy that runs already")
	fl.StringVar(&p.Context, "context", "", "the context of --kubeconfig (default: its current one)")
	fl.StringVar(&p.AuditLog, "audit-log", "", "audit log of that cluster, a file that grows (authzconf up --audit-log writes one)")
	fl.StringVar(&p.Namespace, "namespace", "default", "namespace whose pods are listed on that cluster")
	fl.StringVar(&p.APIPrefix, "api-prefix", "", "path of the Kubernetes API below the URL, such as /k8s/clusters/local")
	fl.StringVar(&p.CA, "proxy-ca", "", "authority of the proxy's certificate, in PEM (default: those of the system)")
	fl.StringVar(&p.Revoke, "revoke-command", "", "shell command that makes the credentials of the first --identity worthless, while a watch of that person is open; tried last")
	fl.DurationVar(&p.Timeout, "timeout", 30*time.Second, "how long the proxy may take to start, and to answer")
}

func (f *deputyFlags) useProxy(fl *pflag.FlagSet) {
	if !fl.Changed("proxy") {
		return
	}
	f.options.Proxy = &f.proxy
	if f.proxy.Kubeconfig == "" {
		f.proxy.Namespace = deputy.Namespace
	}
	if !fl.Changed("impersonation") {
		f.options.Impersonation = []string{"legacy"} // what proxies use today
	}
}

// withoutSecrets is a command line without what --identity says of people's credentials.
func withoutSecrets(args []string) []string {
	out := slices.Clone(args)
	for i, arg := range out {
		if value, ok := strings.CutPrefix(arg, "--identity="); ok {
			out[i] = "--identity=" + deputy.RedactIdentity(value)
		} else if i > 0 && out[i-1] == "--identity" {
			out[i] = deputy.RedactIdentity(arg)
		}
	}
	return out
}
