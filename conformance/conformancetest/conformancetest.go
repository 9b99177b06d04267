// Package conformancetest runs scenarios in the tests of somebody who builds clusters or API servers, as authzconf run does. A
// scenario that the server does not follow fails the test.
package conformancetest

import (
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/engine/product/producttest"
)

// Run runs the scenarios that fit a cluster which exists. kubeconfig is the file of an administrator of the cluster. The cluster
// is observed from outside: ServiceAccounts are substituted for users, and what only the API server's own log and reviews show
// is not judged. flags are those of authzconf run, such as --focus=^kep-5284/, --level=core or --report-dir=out.
func Run(t producttest.T, kubeconfig string, flags ...string) {
	t.Helper()
	producttest.RequirePass(t, conformance.Product, append([]string{"--provider=existing", "--kubeconfig=" + kubeconfig}, flags...)...)
}

// RunServer runs the scenarios on a kube-apiserver of one's own, on a control plane that is made for the test. program is the
// file of the kube-apiserver, and version the version that it says it has, such as 1.37. flags are those of authzconf run, such
// as --gate=both.
func RunServer(t producttest.T, program, version string, flags ...string) {
	t.Helper()
	producttest.RequirePass(t, conformance.Product, append([]string{"--api-server=" + program, "--kubernetes=" + version}, flags...)...)
}
