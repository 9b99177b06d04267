package reference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/engine/recorder"
)

// path is where reviews are posted.
const path = "/authorize"

// Server is a running webhook on a free port of the loopback interface.
type Server struct {
	pki    *PKI
	url    string
	server *http.Server
	served chan struct{}
}

// Start serves a handler by TLS until Close, to clients with the certificate that Kubeconfig holds. A nil pki is a
// new one.
func Start(h http.Handler, pki *PKI) (*Server, error) {
	if pki == nil {
		end := time.Now().Add(24 * time.Hour)
		var err error
		if pki, err = NewPKI(end, end); err != nil {
			return nil, err
		}
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	s := &Server{pki: pki, url: "https://" + l.Addr().String() + path, served: make(chan struct{})}
	s.server = &http.Server{
		Handler: h, TLSConfig: pki.ServerConfig(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0),
		// The default of 250 streams would be a queue where 1,000 reviews are meant to be under way.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 2000},
	}
	go func() {
		defer close(s.served)
		_ = s.server.ServeTLS(l, "", "") // ends with Close
	}()
	return s, nil
}

// ServeFor serves a handler until stop, to whom the kubeconfig is for. It holds a client key: path is made anew,
// readable by its owner only, and a link that is there already is not followed.
func ServeFor(h http.Handler, path string, kubeconfig func(*Server) ([]byte, error)) (stop func() error, err error) {
	s, err := Start(h, nil)
	if err != nil {
		return nil, err
	}
	raw, err := kubeconfig(s)
	if err == nil {
		_ = os.Remove(path)
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s.Close, nil
}

// Close cuts all connections and returns when nothing is served any more.
func (s *Server) Close() error {
	err := s.server.Close()
	<-s.served
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// URL is where reviews are posted.
func (s *Server) URL() string { return s.url }

// Base is the URL without a path.
func (s *Server) Base() string { return strings.TrimSuffix(s.url, path) }

// CA is the certificate, in PEM, of the authority that signed the serving certificate.
func (s *Server) CA() []byte { return slices.Clone(s.pki.CA) }

// Kubeconfig is the webhook configuration of an API server. It holds a client key: write it to a file that nobody
// else can read.
func (s *Server) Kubeconfig() ([]byte, error) { return s.pki.Kubeconfig(s.url) }

// Kubeconfig is the webhook configuration for a server with these certificates.
func (p *PKI) Kubeconfig(url string) ([]byte, error) {
	return WebhookConfig(clientcmdapi.Cluster{Server: url, CertificateAuthorityData: p.CA}, clientcmdapi.AuthInfo{ClientCertificateData: p.ClientCert, ClientKeyData: p.ClientKey})
}

// WebhookConfig is a kubeconfig with one context.
func WebhookConfig(cluster clientcmdapi.Cluster, user clientcmdapi.AuthInfo) ([]byte, error) {
	const name = "authorizer"
	c := clientcmdapi.NewConfig()
	c.Clusters[name], c.AuthInfos[name] = &cluster, &user
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return clientcmd.Write(*c)
}

// PKI is an authority with one certificate for each side. The authority's key is thrown away.
type PKI struct{ *recorder.PKI }

// NewPKI makes certificates for the loopback addresses. The two ends are when the serving and the client
// certificate expire, which lets a test have expired ones.
func NewPKI(servingEnd, clientEnd time.Time) (*PKI, error) {
	p, err := recorder.NewPKI(servingEnd, clientEnd)
	return &PKI{p}, err
}

// File is a file that may change, such as one that a policy hook overwrites.
type File[T any] struct {
	path  string
	parse func(path string, raw []byte) (T, error)

	mu   sync.Mutex
	when time.Time
	size int64
}

// Follow reads a file for the first time.
func Follow[T any](path string, parse func(path string, raw []byte) (T, error)) (*File[T], T, error) {
	f := &File[T]{path: path, parse: parse}
	first, _, err := f.Changed()
	return f, first, err
}

// Changed reads the file if it is not as it was when it was last read without an error.
func (f *File[T]) Changed() (value T, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil || info.ModTime().Equal(f.when) && info.Size() == f.size {
		return value, false, err
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return value, false, err
	}
	if value, err = f.parse(f.path, raw); err == nil {
		f.when, f.size = info.ModTime(), info.Size()
	}
	return value, err == nil, err
}
