package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/authzconf/authzconf/clusters"
)

// loopbackName is the name of the loopback interface.
const loopbackName = "localhost"

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
	l, err := serve(listener, handler, clientCA, names...)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return l, nil
}

// serve is ServeLoopback on any listener.
func serve(listener net.Listener, handler http.Handler, clientCA []byte, names ...string) (*Loopback, error) {
	cert, ca, err := selfSigned(time.Now(), append(names, loopbackName))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if clientCA != nil {
		config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(clientCA) {
			return nil, errors.New("the client CA holds no certificate")
		}
	}
	port := listener.Addr().(*net.TCPAddr).Port
	l := &Loopback{
		URL: fmt.Sprintf("https://127.0.0.1:%d", port), Port: port, CA: ca,
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

// selfSigned makes a certificate for the loopback interface that is its own authority.
func selfSigned(now time.Time, names []string) (tls.Certificate, []byte, error) {
	const lifetime = 30 * 24 * time.Hour
	cert, key, err := clusters.Sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "authzconf-loopback"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, nil, nil)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}, clusters.EncodeCertificate(cert), nil
}
