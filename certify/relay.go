package certify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/authzconf/authzconf/certify/reference"
)

// relay passes bytes on between an API server and a webhook, and can be cut: so the harness takes a webhook away
// that it does not run. It sees nothing of what is said, for TLS goes through it.
type relay struct {
	to, addr string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	lanes    sync.WaitGroup
}

// newRelay listens on a free port of the loopback interface.
func newRelay(ctx context.Context, to string) (*relay, error) {
	r := &relay{to: to, addr: "127.0.0.1:0", conns: map[net.Conn]bool{}}
	return r, r.up(ctx)
}

// up listens, again on the same port if it has been up before.
func (r *relay) up(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", r.addr)
	if err != nil {
		return fmt.Errorf("the relay to the webhook: %w", err)
	}
	r.mu.Lock()
	r.listener, r.addr = l, l.Addr().String()
	r.mu.Unlock()
	r.lanes.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.lanes.Go(func() { r.pass(c) })
		}
	})
	return nil
}

// down cuts all connections and takes no more.
func (r *relay) down() {
	r.mu.Lock()
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.lanes.Wait()
}

// keep notes a connection, unless the relay is down.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		_ = c.Close()
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// pass copies both ways until one of the two ends.
func (r *relay) pass(from net.Conn) {
	if !r.keep(from) {
		return
	}
	defer r.drop(from)
	to, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", r.to)
	if err != nil || !r.keep(to) {
		return
	}
	defer r.drop(to)
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
		r.lanes.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		})
	}
	<-done
}

// relayed starts a relay to the webhook, and renders the kubeconfig that leads an API server through it. It holds
// everything that the webhook's own names files for.
func (w *Webhook) relayed(ctx context.Context) (*relay, []byte, error) {
	u, err := url.Parse(w.url)
	if err != nil {
		return nil, nil, err
	}
	if w.config.Proxy != nil {
		return nil, nil, errors.New("the webhook's kubeconfig has a proxy-url: in a cluster it is reached directly only")
	}
	config := rest.CopyConfig(w.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, nil, err
	}
	if config.BearerToken == "" && config.BearerTokenFile != "" {
		token, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return nil, nil, err
		}
		config.BearerToken = string(token)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	r, err := newRelay(ctx, net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, nil, err
	}
	name := config.ServerName
	if name == "" {
		name = u.Hostname()
	}
	u.Host = r.addr
	raw, err := reference.WebhookConfig(clientcmdapi.Cluster{
		Server: u.String(), TLSServerName: name, CertificateAuthorityData: config.CAData, InsecureSkipTLSVerify: config.Insecure,
	}, clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken, Username: config.Username, Password: config.Password,
	})
	return r, raw, err
}
