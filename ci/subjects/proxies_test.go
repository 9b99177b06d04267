// Package subjects are proxies that act for their users, as such proxies are commonly written: authzconf deputy --proxy
// is tried on them. They know people by the header X-Forwarded-User, as behind a proxy that has authenticated them, and
// the API server by KUBECONFIG.
package subjects

import (
	"crypto/tls"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// userHeader says who a request is from.
const userHeader = "X-Forwarded-User"

// TestMain makes the test binary each of the proxies too: it is started with NAME ADDRESS.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		os.Exit(m.Run())
	}
	if len(os.Args) != 3 || subjects[os.Args[1]] == nil {
		fmt.Fprintf(
			os.Stderr,
			"usage: subjects NAME ADDRESS, with NAME one of %s\n",
			strings.Join(slices.Sorted(maps.Keys(subjects)), ", "),
		)
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// serve serves a subject without TLS, over HTTP/1.1 and, as all do who know it, HTTP/2.
func serve(name, address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	b := &behind{config: config}
	if b.url, err = url.Parse(config.Host); err != nil {
		return err
	}
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.NextProtos = []string{"http/1.1"} // or no connection can be upgraded
	if b.transport, err = rest.TransportFor(anonymous); err != nil {
		return err
	}
	handler, err := subjects[name](b)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols}
	return server.Serve(listener)
}

// behind is the API server, and the way there without credentials.
type behind struct {
	config    *rest.Config
	url       *url.URL
	transport http.RoundTripper
}

var subjects = map[string]func(*behind) (http.Handler, error){
	"director": director, "rewrite": rewrite, "careful": careful, "upgrade-aware": upgradeAware, "own-rights": ownRights,
}

// signedIn refuses who does not say who he is.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(userHeader) == "" {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// director is httputil.ReverseProxy as NewSingleHostReverseProxy is commonly extended. What Connection names is dropped
// after Director was called.
func director(b *behind) (http.Handler, error) {
	p := httputil.NewSingleHostReverseProxy(b.url)
	first := p.Director
	p.Transport, p.FlushInterval = b.transport, -1
	p.Director = func(r *http.Request) {
		first(r)
		r.Header.Set("Authorization", "Bearer "+b.config.BearerToken)
		r.Header.Set("Impersonate-User", r.Header.Get(userHeader))
	}
	return signedIn(p), nil
}

// rewrite is the same with Rewrite. The headers that impersonate more than the user are those of the client.
func rewrite(b *behind) (http.Handler, error) {
	return signedIn(&httputil.ReverseProxy{Transport: b.transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(b.url)
		r.SetXForwarded()
		r.Out.Header.Set("Authorization", "Bearer "+b.config.BearerToken)
		r.Out.Header.Set("Impersonate-User", r.In.Header.Get(userHeader))
	}}), nil
}

// passed are the headers that careful passes on. Upgrades are ReverseProxy's own matter.
var passed = []string{"Accept", "Content-Type", "Content-Length", "Transfer-Encoding", "User-Agent", "Audit-Id"}

// careful is Rewrite once more: of what the client sends only what is known to say nothing about who it is goes on. A
// person is one header, not two.
func careful(b *behind) (http.Handler, error) {
	p := &httputil.ReverseProxy{Transport: b.transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(b.url)
		maps.DeleteFunc(r.Out.Header, func(name string, _ []string) bool { return !slices.Contains(passed, name) })
		r.Out.Header.Set("Authorization", "Bearer "+b.config.BearerToken)
		r.Out.Header.Set("Impersonate-User", r.In.Header.Get(userHeader))
	}}
	return signedIn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values(userHeader)) != 1 {
			http.Error(w, "who are you?", http.StatusBadRequest)
			return
		}
		p.ServeHTTP(w, r)
	})), nil
}

// upgradeAware is the handler of k8s.io/apimachinery with client-go's impersonation, as proxies have it that are built of
// Kubernetes' own parts.
func upgradeAware(b *behind) (http.Handler, error) {
	tlsConfig, err := rest.TLSConfigFor(b.config)
	if err != nil {
		return nil, err
	}
	upgrade := &http.Transport{TLSClientConfig: tlsConfig, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	return signedIn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as := func(next http.RoundTripper) http.RoundTripper {
			return transport.NewImpersonatingRoundTripper(
				transport.ImpersonationConfig{UserName: r.Header.Get(userHeader)},
				transport.NewBearerAuthRoundTripper(b.config.BearerToken, next),
			)
		}
		to := *b.url
		to.Path, to.RawQuery = r.URL.Path, r.URL.RawQuery
		for name := range r.Header {
			if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
				r.Header.Del(name)
			}
		}
		h := proxy.NewUpgradeAwareHandler(&to, as(b.transport), false, false, responder{})
		h.UpgradeTransport = proxy.NewUpgradeRequestRoundTripper(upgrade, as(proxy.MirrorRequest))
		h.UseRequestLocation = true
		h.ServeHTTP(w, r)
	})), nil
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// ownRights is what kubectl proxy is: whoever reaches it has the rights of the kubeconfig.
func ownRights(b *behind) (http.Handler, error) {
	t, err := rest.TransportFor(b.config)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{Transport: t, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(b.url) }}, nil
}
