package deputy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// Product tries a program that acts for users: the reference deputy and agent, or somebody else's proxy.
var Product = product.Product{Name: "deputy", Command: "deputy", New: newFlags, Conceal: concealIdentities}

// flags are those of the product.
type flags struct {
	options    options
	proxy      Proxy
	kubernetes string
	binaries   local.Binaries
	set        *pflag.FlagSet
}

func newFlags(set *pflag.FlagSet) product.Flags {
	f := &flags{set: set}
	minors := seq.Map(local.Releases(), func(r local.Release) string { return r.Minor })
	set.StringVar(&f.kubernetes, "kubernetes", local.Newest().Minor, "version to run on, of "+strings.Join(minors, ", "))
	f.binaries.RegisterFlags(set)
	f.binaries.RegisterAPIServers(set)
	set.StringSliceVar(&f.options.impersonation, "impersonation", Impersonations(), "how the proxy identity may impersonate")
	set.StringSliceVar(&f.options.parts, "parts", Parts(), "what to check, of what there is")
	set.IntVar(&f.options.pairs, "pairs", 1500, "questions of the pre-flight")
	set.IntVar(&f.options.users, "users", 50, "people who send requests at once")
	set.IntVar(&f.options.requests, "requests-each", 20, "requests of each on each way, and as many that try to be somebody else")
	set.StringSliceVar(
		&f.options.clusters,
		"clusters",
		nil,
		"names of two clusters behind the proxy, such as east,west: what is for one must not arrive at the other. {cluster} in --api-prefix, --kubeconfig, --context and --audit-log stands for each (without --proxy, the reference hub is tried)",
	)
	f.registerProxy()
	return f
}

func (f *flags) registerProxy() {
	p := &f.proxy
	f.set.StringVar(&p.URL, "proxy", "", "URL of a proxy that acts for people, which is tried in place of the references")
	f.set.StringArrayVar(
		&p.Identities,
		"identity",
		nil,
		"NAME=header:HEADER: VALUE, =token:FILE, =cookie:COOKIE=VALUE or =client-cert:CERT,KEY: who should arrive, and what the proxy knows that person by (repeatable, at least two people; NAME[GROUP,GROUP] has groups; @FILE in place of a value of header and cookie)",
	)
	f.set.StringVar(&p.Command, "proxy-command", "", "shell command that starts the proxy, with KUBECONFIG for a local control plane")
	f.set.StringVar(&p.Kubeconfig, "kubeconfig", "", "the cluster behind a proxy that runs already")
	f.set.StringVar(
		&p.Context,
		"context",
		"",
		"the context of --kubeconfig (default: its current one; with --clusters, the one with the cluster's name)",
	)
	f.set.StringVar(
		&p.AuditLog,
		"audit-log",
		"",
		"audit log of that cluster: a file that grows (authzconf up --audit-log writes one), - for standard input, command:COMMAND for what a command prints, or webhook:HOST:PORT to listen as an audit webhook backend (with ,CERT,KEY where that is not loopback)",
	)
	f.set.DurationVar(
		&p.AuditWait,
		"audit-wait",
		35*time.Second,
		"how long an event may take to get into that log (an API server that writes in batches does so every 30 s at the latest)",
	)
	f.set.StringVar(
		&p.Requests,
		"requests",
		"",
		"file of a dashboard's own requests, each with what must arrive at the API server, for a --proxy that does not speak the Kubernetes API",
	)
	f.set.StringVar(
		&p.Trail,
		"trail",
		"",
		"the dashboard's own audit trail, which is compared with the audit log row for row: a file that grows, - or command:COMMAND",
	)
	f.set.StringVar(&p.Namespace, "namespace", "default", "namespace whose pods are listed on that cluster")
	f.set.StringVar(
		&p.APIPrefix,
		"api-prefix",
		"",
		"path of the Kubernetes API below the URL, such as /k8s/clusters/local (with --clusters, /k8s/clusters/{cluster})",
	)
	f.set.StringVar(&p.CA, "proxy-ca", "", "authority of the proxy's certificate, in PEM (default: those of the system)")
	f.set.StringVar(
		&p.Revoke,
		"revoke-command",
		"",
		"shell command that makes the credentials of the first --identity worthless, while a watch of that person is open; tried last",
	)
	f.set.DurationVar(&p.Timeout, "timeout", 30*time.Second, "how long the proxy may take to start, and to answer")
}

// Plan implements product.Flags. People's credentials are read before a run, and are never recorded.
func (f *flags) Plan(i *product.Invocation) (product.Plan, error) {
	o := f.options
	o.seed = i.Seed
	if f.set.Changed("proxy") {
		o.useProxy(f.proxy, f.set.Changed("impersonation"))
	}
	if err := o.check(!i.Verifying()); err != nil {
		return nil, err
	}
	f.binaries.Progress = i.Messages
	var err error
	if o.target, err = controlPlane(f.kubernetes, &f.binaries); err != nil {
		return nil, err
	}
	if o.proxy != nil && o.proxy.Requests != "" {
		plan, err := newDashboardPlan(o, i)
		if err != nil {
			return nil, err
		}
		return plan, server.CheckAPIServers([]server.Options{o.target})
	}
	return newPlan(o), server.CheckAPIServers([]server.Options{o.target})
}

// controlPlane returns the options for a control plane of a version, with the gate on.
func controlPlane(kubernetes string, binaries *local.Binaries) (o server.Options, err error) {
	if o.Release, err = local.ParseRelease(kubernetes); err != nil {
		return o, err
	}
	if !server.HasGate(o.Release.Minor) {
		return o, fmt.Errorf("Kubernetes %s has no feature gate %s: it came with 1.35", o.Release.Minor, server.GateName)
	}
	o.Binaries = binaries
	o.Cell = verdicts.Cell{
		Name:       o.Release.Minor + "-gate-" + string(scenarios.GateOn),
		Provider:   local.Name,
		Kubernetes: o.Release.Version,
		Gate:       scenarios.GateOn,
	}
	return o, nil
}

// useProxy makes the options try a proxy instead of the references.
func (o *options) useProxy(p Proxy, impersonationGiven bool) {
	if p.Kubeconfig == "" {
		p.Namespace = Namespace
	}
	if !impersonationGiven {
		o.impersonation = []string{legacy} // this is what proxies use today
	}
	o.proxy = &p
}

// concealIdentities returns a command line without the credentials that --identity contains.
func concealIdentities(command []string) []string {
	out := slices.Clone(command)
	for i, arg := range out {
		if value, isOneWord := strings.CutPrefix(arg, "--identity="); isOneWord {
			out[i] = "--identity=" + RedactIdentity(value)
		} else if i > 0 && out[i-1] == "--identity" {
			out[i] = RedactIdentity(arg)
		}
	}
	return out
}
