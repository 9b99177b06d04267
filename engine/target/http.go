package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/scenarios"
)

// UserClient authenticates as an arbitrary user through the request-header client certificate, and impersonates if
// imp is given. tap sees every request as it leaves, under all other round trippers.
func (t *Target) UserClient(r scenarios.Requestor, imp *scenarios.Impersonate, tap Tap) (*http.Client, error) {
	return t.client(t.cluster.FrontProxy(), imp, tap, asUser(r))
}

// RequestClient authenticates as the requestor of a request, with token if it is
// a service account, and adds the headers that the request asks for.
func (t *Target) RequestClient(r *scenarios.Request, requestor scenarios.Requestor, token string, tap Tap) (*http.Client, error) {
	c, auth := t.cluster.Anonymous(), asUser(requestor)
	switch {
	case requestor.ServiceAccount != nil:
		auth = func(rt http.RoundTripper) http.RoundTripper { return transport.NewBearerAuthRoundTripper(token, rt) }
	case requestor.Anonymous:
		auth = func(rt http.RoundTripper) http.RoundTripper { return rt }
	default:
		c = t.cluster.FrontProxy()
	}
	if len(r.Headers) > 0 || r.Upgrade != "" {
		// HTTP/2 has lower-case names only, and its client refuses by itself what
		// the server would find too long; nor has it upgrades.
		c.NextProtos = []string{"http/1.1"}
	}
	return t.client(c, r.Impersonate, tap, func(rt http.RoundTripper) http.RoundTripper {
		return auth(roundTripper(func(sent *http.Request) (*http.Response, error) {
			if len(r.Headers) > 0 {
				sent = sent.Clone(sent.Context())
			}
			for _, h := range r.Headers { // as they are written
				if h.Name != "User-Agent" { // that is there, and is sent once
					sent.Header[h.Name] = append(sent.Header[h.Name], h.Bytes())
				}
			}
			return rt.RoundTrip(sent)
		}))
	})
}

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (send roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return send(r) }

// asUser names the user in the request headers that a proxy sends.
func asUser(r scenarios.Requestor) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(r.User, r.UID, r.Groups, r.Extra, rt)
	}
}

// Tap sees a request as it is sent.
type Tap func(*http.Request)

// client builds an HTTP client from client-go's own round trippers. client-go
// shares one connection pool among configurations with the same TLS.
func (t *Target) client(c *rest.Config, imp *scenarios.Impersonate, tap Tap, auth transport.WrapperFunc) (*http.Client, error) {
	rt, err := rest.TransportFor(c)
	if err != nil {
		return nil, err
	}
	rt = auth(Tapped(rt, tap))
	if imp != nil {
		rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: imp.User, UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra,
		}, rt)
	}
	return &http.Client{Transport: rt}, nil
}

// Tapped shows every request to tap before next sends it.
func Tapped(next http.RoundTripper, tap Tap) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		tap(r)
		return next.RoundTrip(r)
	})
}

// Host is the API server's URL without a path.
func (t *Target) Host() string { return t.host }

// Anonymous is the way in without credentials, for clients that bring their own.
func (t *Target) Anonymous() *rest.Config { return t.cluster.Anonymous() }

// TempDir makes a folder for this user alone. Where the cluster has a folder of
// its own it is within, and goes with it even if this process is killed.
func (t *Target) TempDir(prefix string) (string, error) { return os.MkdirTemp(t.Dir(), prefix) }

// Dir is the cluster's own folder, with the logs of local processes; "" if it has none.
func (t *Target) Dir() string {
	if c, ok := t.cluster.(interface{ Dir() string }); ok {
		return c.Dir()
	}
	return ""
}

// Loopback is an HTTPS server of the harness on the loopback interface.
type Loopback struct {
	// URL is where it listens, and Port the last part of it. CA is the certificate to trust, in PEM.
	URL  string
	Port int
	CA   []byte

	server *http.Server
	done   chan struct{}
}

// ServeLoopback starts a server on a free port, with a certificate of its own. It speaks HTTP/1.1 only: with
// HTTP/2 no connection can be upgraded. clientCA, if given, is the authority in PEM that clients may have a
// certificate of, which the handler can ask for; names are further ones to be reached under.
func ServeLoopback(ctx context.Context, handler http.Handler, clientCA []byte, names ...string) (*Loopback, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on the loopback interface: %w", err)
	}
	return serve(listener, handler, clientCA, names...)
}

// serve is ServeLoopback on any listener, which is closed after an error, too.
func serve(listener net.Listener, handler http.Handler, clientCA []byte, names ...string) (*Loopback, error) {
	end := time.Now().Add(recorder.Lifetime)
	pki, err := recorder.NewPKI(end, end, names...)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	config := pki.ServerConfig()
	config.ClientAuth, config.ClientCAs, config.NextProtos = tls.NoClientCert, x509.NewCertPool(), []string{"http/1.1"}
	if clientCA != nil {
		config.ClientAuth = tls.VerifyClientCertIfGiven
		if !config.ClientCAs.AppendCertsFromPEM(clientCA) {
			return nil, errors.Join(errors.New("the client CA holds no certificate"), listener.Close())
		}
	}
	port := listener.Addr().(*net.TCPAddr).Port
	l := &Loopback{
		URL: fmt.Sprintf("https://127.0.0.1:%d", port), Port: port, CA: pki.CA,
		server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(l.done)
		_ = l.server.Serve(tls.NewListener(listener, config))
	}()
	return l, nil
}

// Close ends the server and every connection.
func (l *Loopback) Close() error {
	err := l.server.Close()
	<-l.done
	return err
}
