package server

import (
	"errors"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/scenarios"
)

// Credential is what a requestor authenticates with.
type Credential struct {
	Requestor scenarios.Requestor
	// Token is that of a service account.
	Token string
	// Certificate is the user's own, with its key, both in PEM.
	Certificate, Key []byte
}

// wrap adds the headers of the credential to requests. A certificate has none: it belongs to the connection.
func (c Credential) wrap(rt http.RoundTripper) http.RoundTripper {
	switch c.Requestor.Credential() {
	case scenarios.BearerToken:
		return transport.NewBearerAuthRoundTripper(c.Token, rt)
	case scenarios.ProxyHeaders:
		return asUser(c.Requestor)(rt)
	default:
		return rt
	}
}

// connectAs returns the configuration of a connection with the certificate that the credentials need: that of the proxy if it
// is the proxy who authenticates the requestor, or that of whoever has one.
func (s *Server) connectAs(credentials []Credential) *rest.Config {
	if len(credentials) > 0 && credentials[0].Requestor.Credential() == scenarios.ProxyHeaders {
		return s.cluster.FrontProxy()
	}
	config := s.cluster.Anonymous()
	for _, c := range credentials {
		if len(c.Certificate) > 0 {
			config.CertData, config.KeyData = c.Certificate, c.Key
		}
	}
	return config
}

// SignClient returns a new client certificate for a user with groups, and its key, both in PEM.
func (s *Server) SignClient(user string, groups []string) (cert, key []byte, err error) {
	signer, ok := s.cluster.(clusters.ClientSigner)
	if !ok {
		return nil, nil, errors.New("the authority of client certificates is not at hand")
	}
	return signer.SignClient(user, groups)
}
