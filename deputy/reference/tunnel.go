package reference

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// The tunnel has no listener on the cluster's side: the agent of a cluster opens connections to the hub, and keeps some
// open that are not in use yet. The hub writes a byte to the connection that it takes for a request, and the agent
// answers with one. From then on the connection leads to the agent's own HTTP server, whatever a request makes of it,
// such as a stream or an upgrade.

const (
	// spareConnections is how many connections of an agent wait to be used.
	spareConnections = 4
	takenByte        = 1
	// answerTime is how long an agent may take to answer that byte.
	answerTime = 5 * time.Second
	// retryAfter is how long an agent waits after it failed to open a connection.
	retryAfter = 50 * time.Millisecond
)

// Hub is what the agents of clusters connect to. Only its certificate says which cluster an agent belongs to.
type Hub struct {
	mu       sync.Mutex
	clusters map[string]chan net.Conn
}

// NewHub returns a hub for the clusters with these names. It turns away agents of other clusters.
func NewHub(clusters ...string) *Hub {
	h := &Hub{clusters: map[string]chan net.Conn{}}
	for _, name := range clusters {
		h.clusters[name] = make(chan net.Conn, 100)
	}
	return h
}

// Serve accepts the connections of agents until the listener is closed. The TLS configuration of the listener has to
// demand certificates.
func (h *Hub) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go h.keep(conn.(*tls.Conn))
	}
}

// keep stores a connection for its cluster.
func (h *Hub) keep(conn *tls.Conn) {
	if err := conn.Handshake(); err != nil { //nolint:noctx // it ends with the connection
		_ = conn.Close()
		return
	}
	certificates := conn.ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		_ = conn.Close()
		return
	}
	select {
	case h.spare(certificates[0].Subject.CommonName) <- conn:
	default: // there are enough already, or there is no such cluster
		_ = conn.Close()
	}
}

// spare returns the connections of a cluster that are not in use yet, or nil for an unknown cluster.
func (h *Hub) spare(cluster string) chan net.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clusters[cluster]
}

// Dial returns a connection to the agent of a cluster. It skips connections that have ended.
func (h *Hub) Dial(ctx context.Context, cluster string) (net.Conn, error) {
	spare := h.spare(cluster)
	if spare == nil {
		return nil, fmt.Errorf("there is no cluster %q", cluster)
	}
	for {
		select {
		case conn := <-spare:
			if err := take(conn); err == nil {
				return conn, nil
			}
			_ = conn.Close()
		case <-ctx.Done():
			return nil, fmt.Errorf("no agent of the cluster %q is connected: %w", cluster, ctx.Err())
		}
	}
}

// take tells an agent that its connection is used from now on. An error means that the connection has ended.
func take(conn net.Conn) error {
	_, err := conn.Write([]byte{takenByte})
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(answerTime))
	}
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	return errors.Join(err, conn.SetReadDeadline(time.Time{}))
}

// TunnelListener is the agent's end of a tunnel. It is a listener whose connections the agent opens itself.
type TunnelListener struct {
	dial        func(ctx context.Context) (net.Conn, error)
	connections chan net.Conn
	ctx         context.Context //nolint:containedctx // a listener has no other way to end
	cancel      context.CancelFunc
}

// ConnectTunnel opens connections to a hub until it is closed. For each that is used or breaks, it opens another.
func ConnectTunnel(dial func(ctx context.Context) (net.Conn, error)) *TunnelListener {
	l := &TunnelListener{dial: dial, connections: make(chan net.Conn)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for range spareConnections {
		go l.offer()
	}
	return l
}

// offer keeps one connection open that is not in use yet.
func (l *TunnelListener) offer() {
	for l.ctx.Err() == nil {
		conn, err := l.await()
		if err != nil {
			select {
			case <-time.After(retryAfter):
			case <-l.ctx.Done():
			}
			continue
		}
		select {
		case l.connections <- conn:
		case <-l.ctx.Done():
			_ = conn.Close()
		}
	}
}

// await opens a connection, and returns it when the hub takes it.
func (l *TunnelListener) await() (net.Conn, error) {
	conn, err := l.dial(l.ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	defer stop()
	_, err = io.ReadFull(conn, make([]byte, 1))
	if err == nil {
		_, err = conn.Write([]byte{takenByte})
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Accept implements net.Listener.
func (l *TunnelListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.connections:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *TunnelListener) Close() error {
	l.cancel()
	return nil
}

// Addr implements net.Listener. Nothing can connect to the address.
func (l *TunnelListener) Addr() net.Addr { return &net.UnixAddr{Name: "tunnel", Net: "unix"} }
