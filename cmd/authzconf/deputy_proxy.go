package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/authzconf/authzconf/deputy"
)

// registerProxy adds the flags about a proxy of somebody's.
func (f *deputyFlags) registerProxy(c *cobra.Command) {
	fl, p := c.Flags(), &f.proxy
	fl.StringVar(&p.URL, "proxy", "", "URL of a proxy that acts for people, which is tried in place of the references")
	fl.StringArrayVar(&p.Identities, "identity", nil, "NAME=header:HEADER: VALUE, =token:FILE, =cookie:COOKIE=VALUE or =client-cert:CERT,KEY: who should arrive, and what the proxy knows that person by (repeatable, at least two people; NAME[GROUP,GROUP] has groups; @FILE in place of a value of header and cookie)")
	fl.StringVar(&p.Command, "proxy-command", "", "shell command that starts the proxy, with KUBECONFIG for a local control plane")
	fl.StringVar(&p.Kubeconfig, "kubeconfig", "", "the cluster behind a proxy that runs already")
	fl.StringVar(&p.AuditLog, "audit-log", "", "audit log of that cluster, a file that grows (authzconf up --audit-log writes one)")
	fl.StringVar(&p.Namespace, "namespace", "default", "namespace whose pods are listed on that cluster")
	fl.StringVar(&p.APIPrefix, "api-prefix", "", "path of the Kubernetes API below the URL, such as /k8s/clusters/local")
	fl.StringVar(&p.CA, "proxy-ca", "", "authority of the proxy's certificate, in PEM (default: those of the system)")
	fl.DurationVar(&p.Timeout, "timeout", 30*time.Second, "how long the proxy may take to start, and to answer")
}

// ofProxy are the flags that are for --proxy only.
var ofProxy = []string{"identity", "proxy-command", "kubeconfig", "audit-log", "namespace", "api-prefix", "proxy-ca", "timeout"}

// checkProxy reads the flags about a proxy.
func (f *deputyFlags) checkProxy(c *cobra.Command) error {
	fl := c.Flags()
	if !fl.Changed("proxy") {
		for _, name := range ofProxy {
			if fl.Changed(name) {
				return errors.New("--" + name + " is for --proxy URL")
			}
		}
		return nil
	}
	f.options.Proxy = &f.proxy
	for name, value := range map[string]any{"parts": &f.options.Parts, "impersonation": &f.options.Impersonation} {
		switch list := value.(*[]string); {
		case name == "parts" && !fl.Changed(name):
			*list = nil
		case name == "impersonation" && !fl.Changed(name):
			*list = []string{"legacy"} // what proxies use today
		case name == "impersonation" && f.proxy.Kubeconfig != "":
			return errors.New("--impersonation cannot be chosen for a cluster that is already running")
		}
	}
	switch {
	case fl.Changed("users"):
		return errors.New("--users are those of --identity")
	case f.proxy.Kubeconfig != "" && fl.Changed("kubernetes"):
		return errors.New("--kubernetes cannot be chosen for a cluster that is already running")
	case f.proxy.Kubeconfig == "":
		if fl.Changed("namespace") {
			return errors.New("--namespace is for --kubeconfig: on a local control plane it is made")
		}
		f.proxy.Namespace = deputy.Namespace
	}
	return nil
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
