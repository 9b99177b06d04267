// Package deputytest attacks a proxy that acts for its users, in its author's own tests, as authzconf deputy --proxy
// does. Whoever arrives at the API server has to be the person who sent the request, or nobody. Anything else fails the
// test.
package deputytest

import (
	"github.com/authzconf/authzconf/deputy"
	"github.com/authzconf/authzconf/engine/product/producttest"
)

// Options say how people are recognized, and what is behind the proxy.
type Options struct {
	// Identities are at least two people, and the credentials by which the proxy knows them:
	// "alice=header:X-Forwarded-User: alice", "bob=token:bob.jwt", "carol=cookie:session=9c1f",
	// "dan=client-cert:dan.pem,dan.key". NAME[GROUP,GROUP] also gives their groups.
	Identities []string
	// Command is a shell command that starts the proxy, with KUBECONFIG for a control plane that is made for the test.
	// It is stopped at the end. If it is left out, Arguments name the cluster behind a proxy that is already running,
	// by --kubeconfig and --audit-log.
	Command string
	// Arguments are further flags of authzconf deputy, such as --proxy-ca=ca.pem, --impersonation=constrained or
	// --report-dir=out.
	Arguments []string
}

// Run attacks the proxy at a URL.
func Run(t producttest.T, proxy string, o Options) {
	t.Helper()
	flags := []string{"--proxy=" + proxy}
	if o.Command != "" {
		flags = append(flags, "--proxy-command="+o.Command)
	}
	for _, identity := range o.Identities {
		flags = append(flags, "--identity="+identity)
	}
	producttest.RequirePass(t, deputy.Product, append(flags, o.Arguments...)...)
}
