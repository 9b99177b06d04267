// Package proxy tests a proxy that impersonates its users as its author would: one call, with the program's command and two
// people. The reference deputy stands for the proxy.
package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/authzconf/authzconf/deputy/deputytest"
	"github.com/authzconf/authzconf/deputy/reference"
)

// addressVariable has the test program serve the proxy at an address, in place of running tests.
const addressVariable = "EXAMPLE_PROXY_ADDRESS"

func TestMain(m *testing.M) {
	if address := os.Getenv(addressVariable); address != "" {
		fmt.Fprintln(os.Stderr, serve(address))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestProxy attacks the proxy. It knows people by a header that the server in front of it sets.
func TestProxy(t *testing.T) {
	address := freeAddress(t)
	deputytest.Run(t, "http://"+address, deputytest.Options{
		Command:    fmt.Sprintf("%s=%s exec '%s'", addressVariable, address, os.Args[0]),
		Identities: []string{"alice@corp=header:X-Forwarded-User: alice@corp", "bob@corp=header:X-Forwarded-User: bob@corp"},
		Arguments:  []string{"--seed=7", "--pairs=100"},
	})
}

// serve serves the proxy, which acts on the cluster of KUBECONFIG.
func serve(address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.NextProtos = []string{"http/1.1"} // or no connection can be upgraded
	transport, err := rest.TransportFor(anonymous)
	if err != nil {
		return err
	}
	handler, err := reference.New(reference.Options{
		Target: target, Transport: transport, Token: config.BearerToken, GroupTiers: map[string]string{"staff": "read"},
		Session: func(r *http.Request) (reference.User, bool) {
			names := r.Header.Values("X-Forwarded-User")
			if len(names) != 1 {
				return reference.User{}, false
			}
			return reference.User{Subject: names[0], Groups: []string{"staff"}}, names[0] != ""
		},
		Audit: func(reference.Row) error { return nil },
	})
	if err != nil {
		return err
	}
	return http.ListenAndServe(address, handler)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
