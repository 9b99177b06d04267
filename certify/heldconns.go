package certify

import (
	"context"
	"net"
	"slices"
	"sync"
)

// heldConns are the connections of clients. What is written to them can be held back, and then sent at once.
type heldConns struct {
	mu    sync.Mutex
	conns []*heldConn
}

// wrapDial returns a function that opens connections whose writes can be held back.
func (c *heldConns) wrapDial(
	dial func(ctx context.Context, network, address string) (net.Conn, error),
) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := &heldConn{Conn: plain, conns: c}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
		return conn, nil
	}
}

// remove removes a connection that is closed from the list.
func (c *heldConns) remove(conn *heldConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = slices.DeleteFunc(c.conns, func(other *heldConn) bool { return other == conn })
}

// openConns returns the open connections.
func (c *heldConns) openConns() []*heldConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.conns)
}

// isEmpty reports whether no connection is open.
func (c *heldConns) isEmpty() bool { return len(c.openConns()) == 0 }

// holdWrites holds back everything that is written from now on.
func (c *heldConns) holdWrites() {
	for _, conn := range c.openConns() {
		conn.setHeld(true)
	}
}

// releaseWrites sends what was held back. Later writes are no longer held back.
func (c *heldConns) releaseWrites() {
	for _, conn := range c.openConns() {
		conn.setHeld(false)
	}
}

// heldConn is a connection whose writes can be held back.
type heldConn struct {
	net.Conn
	conns *heldConns // that it is one of

	mu      sync.Mutex
	isHeld  bool
	pending []byte
}

// Write writes, or keeps what is to be written later.
func (c *heldConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isHeld {
		c.pending = append(c.pending, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *heldConn) Close() error {
	c.conns.remove(c)
	return c.Conn.Close()
}

// setHeld begins to hold back writes, or sends those that were held back. The next read shows if that failed.
func (c *heldConn) setHeld(isHeld bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isHeld = isHeld; !isHeld && len(c.pending) > 0 {
		_, _ = c.Conn.Write(c.pending)
		c.pending = nil
	}
}
