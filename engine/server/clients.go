package server

import (
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/scenarios"
)

// FrontProxy is the transport with which requestors of any name are sent, by headers that come on top of it. It
// speaks HTTP/1.1, which is quicker as long as requests come one at a time.
func (s *Server) FrontProxy() (http.RoundTripper, error) {
	c := s.cluster.FrontProxy()
	c.NextProtos = []string{"http/1.1"}
	return rest.TransportFor(c)
}

// FrontProxyOfOne is FrontProxy by HTTP/2: many requests at once are streams of one connection.
func (s *Server) FrontProxyOfOne() (http.RoundTripper, error) {
	return rest.TransportFor(s.cluster.FrontProxy())
}

// UserClient authenticates as an arbitrary user through the request-header client certificate, and impersonates if
// imp is given. tap sees every request as it leaves, under all other round trippers.
func (s *Server) UserClient(r scenarios.Requestor, imp *scenarios.Impersonate, tap Tap) (*http.Client, error) {
	return s.client(s.cluster.FrontProxy(), imp, tap, asUser(r))
}

// UserConfig authenticates as an arbitrary user through the request-header client certificate, for clients that are made
// of a configuration.
func (s *Server) UserConfig(r scenarios.Requestor) *rest.Config {
	c := s.cluster.FrontProxy()
	c.Wrap(asUser(r))
	return c
}

// RequestClient returns a client that sends a request with these credentials, the requestor's first, and adds the headers that
// the request asks for.
func (s *Server) RequestClient(r *scenarios.Request, credentials []Credential, tap Tap) (*http.Client, error) {
	c := s.connectAs(credentials)
	auth := func(rt http.RoundTripper) http.RoundTripper {
		for _, one := range credentials {
			rt = one.wrap(rt)
		}
		return rt
	}
	if len(r.Headers) > 0 || r.Upgrade != "" {
		// HTTP/2 has lower-case names only and no upgrades, and its client refuses what the server would find too long.
		c.NextProtos = []string{"http/1.1"}
	}
	return s.client(c, r.Impersonate, tap, func(rt http.RoundTripper) http.RoundTripper {
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

type roundTripper func(*http.Request) (*http.Response, error)

func (send roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return send(r) }

func asUser(r scenarios.Requestor) transport.WrapperFunc {
	return func(rt http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(r.User, r.UID, r.Groups, r.Extra, rt)
	}
}

// Tap sees a request as it is sent.
type Tap func(*http.Request)

// client builds an HTTP client of client-go's round trippers, which share connections among configurations of equal TLS.
func (s *Server) client(c *rest.Config, imp *scenarios.Impersonate, tap Tap, auth transport.WrapperFunc) (*http.Client, error) {
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
