// Package balancer is a TCP balancer like those in front of highly available API servers.
package balancer

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// dialTimeout is how long a backend may take to accept a connection. It is on this machine.
const dialTimeout = time.Second

// Balancer passes each connection on to one of its backends, in turn. If one refuses, it tries the others before the
// client sees anything, as if a health check had excluded that one. If all refuse, or there is none, it closes the
// client's connection. A connection that has been passed on is never moved: it ends with its backend. The methods may
// be called from several goroutines.
type Balancer struct {
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	backends []string
	next     int
	open     map[net.Conn]bool // to clients and to backends
}

// Start listens on a free loopback port and passes connections on to backends (host:port). The caller has to call
// Close.
func Start(backends ...string) (*Balancer, error) { return StartAt("127.0.0.1:0", backends...) }

// StartAt does the same as Start at an IPv4 address (host:port).
func StartAt(address string, backends ...string) (_ *Balancer, err error) {
	b := &Balancer{backends: slices.Clone(backends), open: map[net.Conn]bool{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	var config net.ListenConfig
	if b.listener, err = config.Listen(b.ctx, "tcp4", address); err != nil {
		b.cancel()
		return nil, err
	}
	b.running.Go(b.accept)
	return b, nil
}

// Addr returns the host:port to which clients connect.
func (b *Balancer) Addr() string { return b.listener.Addr().String() }

// Set changes the backends. A backend that is removed gets no new connections, but its open ones go on, so that what
// was asked is still answered.
func (b *Balancer) Set(backends ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = slices.Clone(backends)
}

// Cut closes every connection that is open. New ones are passed on as before.
func (b *Balancer) Cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.open {
		_ = conn.Close()
	}
}

// Close stops listening, closes every connection, and returns when that is over. Further calls do nothing.
func (b *Balancer) Close() error {
	b.cancel()
	b.Cut()
	err := b.listener.Close()
	b.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (b *Balancer) accept() {
	for {
		client, err := b.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // out of files, for example: others may be closed soon
			continue
		}
		b.running.Go(func() { b.serve(client) })
	}
}

// serve passes one connection on until both sides have sent everything, or one breaks.
func (b *Balancer) serve(client net.Conn) {
	defer b.forget(client)
	if !b.admit(client, "") {
		return
	}
	backend := b.connect()
	if backend == nil {
		return
	}
	defer b.forget(backend)
	var copies sync.WaitGroup
	copies.Go(func() { pass(client, backend) })
	copies.Go(func() { pass(backend, client) })
	copies.Wait()
}

// pass copies one direction of a connection. When that ends in order, the other direction stays open, because an answer
// may still be on its way. A broken connection ends both.
func pass(from, to net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	_ = from.Close()
	_ = to.Close()
}

// connect dials the backends in turn until one accepts. It returns nil if none does.
func (b *Balancer) connect() net.Conn {
	dialer := net.Dialer{Timeout: dialTimeout}
	refused := map[string]bool{}
	for {
		backend := b.pick(refused)
		if backend == "" {
			return nil
		}
		conn, err := dialer.DialContext(b.ctx, "tcp", backend)
		switch {
		case err != nil:
			refused[backend] = true
		case b.admit(conn, backend):
			return conn
		default:
			_ = conn.Close()
		}
	}
}

// pick returns the backend whose turn it is, except those that have refused, or "" if none is left.
func (b *Balancer) pick(refused map[string]bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return ""
	}
	for i := range b.backends {
		turn := (b.next + i) % len(b.backends)
		if backend := b.backends[turn]; !refused[backend] {
			b.next = turn + 1
			return backend
		}
	}
	return ""
}

// admit adds a connection. It returns false after Close, and if the backend was removed while it was dialled.
func (b *Balancer) admit(conn net.Conn, backend string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	takenOut := backend != "" && !slices.Contains(b.backends, backend)
	if takenOut || b.ctx.Err() != nil {
		return false
	}
	b.open[conn] = true
	return true
}

func (b *Balancer) forget(conn net.Conn) {
	_ = conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, conn)
}
