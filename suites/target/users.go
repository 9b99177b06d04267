package target

import (
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/scenarios"
)

// UserClient authenticates as an arbitrary user through the request-header
// client certificate, and impersonates if imp is given. tap sees every request
// as it leaves, under all other round trippers.
func (t *Target) UserClient(r scenarios.Requestor, imp *scenarios.Impersonate, tap Tap) (*http.Client, error) {
	return t.client(t.cluster.FrontProxy(), imp, tap, func(rt http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(r.User, r.UID, r.Groups, r.Extra, rt)
	})
}

// TokenClient authenticates with a bearer token.
func (t *Target) TokenClient(token string, imp *scenarios.Impersonate, tap Tap) (*http.Client, error) {
	return t.client(t.cluster.Anonymous(), imp, tap, func(rt http.RoundTripper) http.RoundTripper {
		return transport.NewBearerAuthRoundTripper(token, rt)
	})
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
	rt = auth(tapped{tap: tap, next: rt})
	if imp != nil {
		rt = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: imp.User, UID: imp.UID, Groups: imp.Groups, Extra: imp.Extra,
		}, rt)
	}
	return &http.Client{Transport: rt}, nil
}

type tapped struct {
	tap  Tap
	next http.RoundTripper
}

func (t tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	t.tap(r)
	return t.next.RoundTrip(r)
}

// Host is the API server's URL without a path.
func (t *Target) Host() string { return t.host }
