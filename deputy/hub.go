package deputy

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/deputy/reference"
)

// hub is the reference hub with the agents of clusters. Each agent opens a tunnel to the hub.
type hub struct {
	*reference.Hub
	closers []func() error

	mu sync.Mutex
	// tunnels are the connections that each agent has opened.
	tunnels map[string][]net.Conn
}

// startHub starts a hub, and an agent for each control plane, by the clusters' names.
func startHub(ctx context.Context, names []string, planes []*plane) (_ *hub, err error) {
	h := &hub{Hub: reference.NewHub(names...), tunnels: map[string][]net.Conn{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	authority, err := newAuthority()
	if err != nil {
		return nil, err
	}
	certificate, err := authority.issue("hub", x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	tcpListener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	listener := tls.NewListener(
		tcpListener,
		&tls.Config{
			Certificates: []tls.Certificate{certificate},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    authority.pool,
			MinVersion:   tls.VersionTLS12,
		},
	)
	h.closers = append(h.closers, listener.Close)
	go func() { _ = h.Serve(listener) }()
	for n, name := range names {
		cert, err := authority.issue(name, x509.ExtKeyUsageClientAuth)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: authority.pool, MinVersion: tls.VersionTLS12}
		if err := h.startAgent(planes[n], name, tcpListener.Addr().String(), config); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// startAgent starts the reference agent of a cluster. The agent opens its tunnel to the hub.
func (h *hub) startAgent(p *plane, name, address string, config *tls.Config) error {
	toServer := p.Anonymous()
	toServer.NextProtos = []string{"http/1.1"} // HTTP/2 cannot upgrade to SPDY
	transport, err := rest.TransportFor(toServer)
	if err != nil {
		return err
	}
	tunnel := reference.ConnectTunnel(func(ctx context.Context) (net.Conn, error) {
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.tunnels[name] = append(h.tunnels[name], conn)
		}
		return conn, err
	})
	agent := &http.Server{Handler: reference.NewAgent(p.url, transport, func() string { return p.token }), ReadHeaderTimeout: timeout}
	go func() { _ = agent.Serve(tunnel) }()
	h.closers = append(h.closers, func() error { return errors.Join(agent.Close(), tunnel.Close()) })
	return nil
}

// breakTunnels closes all connections that the agent of a cluster has opened.
func (h *hub) breakTunnels(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.tunnels[name] {
		_ = conn.Close()
	}
	h.tunnels[name] = nil
}

// close stops the agents and the hub.
func (h *hub) close() (err error) {
	for _, end := range slices.Backward(h.closers) {
		err = errors.Join(err, end())
	}
	return err
}

// openFront starts a hub in front of two control planes, and returns its front as the endpoint.
func openFront(ctx context.Context, names []string, planes []*plane, people []*Identity) (*endpoint, error) {
	h, err := startHub(ctx, names, planes)
	if err != nil {
		return nil, err
	}
	ep, err := planes[0].serve(ctx, reference.NewFront(h.Hub, names...), people)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	ep.url.Path, ep.cluster = reference.ClustersPath+names[0], names[0]
	ep.other = &secondCluster{name: names[1], prefix: reference.ClustersPath + names[1], log: planes[1].auditLog(), plane: planes[1]}
	closeFront := ep.close
	ep.close = func() error { return errors.Join(closeFront(), h.close()) }
	return ep, nil
}

// authority issues the certificates of a hub and its agents. They trust only certificates that it issued.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// tunnelLifetime is how long these certificates are valid. No run takes longer.
const tunnelLifetime = 24 * time.Hour

func newAuthority() (*authority, error) {
	cert, key, err := clusters.Sign(certificateFor("authority"), nil, nil)
	if err != nil {
		return nil, err
	}
	a := &authority{cert, key, x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a, nil
}

// issue returns a certificate for a name.
func (a *authority) issue(name string, usage x509.ExtKeyUsage) (tls.Certificate, error) {
	template := certificateFor(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	cert, key, err := clusters.Sign(template, a.cert, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

func certificateFor(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(tunnelLifetime),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}
