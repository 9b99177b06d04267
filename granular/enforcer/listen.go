package enforcer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/engine/recorder"
)

// Server serves a handler over TLS on the loopback interface.
type Server struct {
	addr   string
	ca     []byte
	server *http.Server
	served chan struct{}
}

// Serve starts a server with a certificate made for it. Close ends it.
func Serve(h http.Handler) (*Server, error) {
	certificate, ca, err := servingCertificate()
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{addr: l.Addr().String(), ca: ca, served: make(chan struct{}), server: &http.Server{
		Handler:           h,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}}
	go func() {
		defer close(s.served)
		_ = s.server.ServeTLS(l, "", "")
	}()
	return s, nil
}

// Client is a client configuration with a token, or without one if it is empty.
func (s *Server) Client(token string) *rest.Config {
	return &rest.Config{Host: "https://" + s.addr, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca}, QPS: -1}
}

// CA is the certificate, in PEM, of the authority that has signed the server's.
func (s *Server) CA() []byte { return s.ca }

// Close ends the server and what it is serving.
func (s *Server) Close() error {
	err := s.server.Close()
	<-s.served
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func servingCertificate() (tls.Certificate, []byte, error) {
	form := func(name string) *x509.Certificate {
		return &x509.Certificate{
			Subject:   pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		}
	}
	ca, caKey, err := recorder.Sign(form("authzconf-granular-ca"), nil, nil)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf := form("authzconf-granular")
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	serving, key, err := recorder.Sign(leaf, ca, caKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{serving.Raw}, PrivateKey: key, Leaf: serving}, recorder.EncodeCertificate(ca), nil
}
