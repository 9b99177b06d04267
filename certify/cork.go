package certify

import (
	"context"
	"net"
	"slices"
	"sync"
)

// corks are the connections of clients. What is written to them can be held back, and then sent at once.
type corks struct {
	mu  sync.Mutex
	all []*corkedConn
}

// dial returns a function that opens connections whose writes can be held back.
func (c *corks) dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := &corkedConn{Conn: plain, corks: c}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, conn)
		return conn, nil
	}
}

// remove removes a connection that is closed from the list.
func (c *corks) remove(conn *corkedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(other *corkedConn) bool { return other == conn })
}

// list returns the open connections.
func (c *corks) list() []*corkedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// isEmpty reports whether no connection is open.
func (c *corks) isEmpty() bool { return len(c.list()) == 0 }

// close holds back everything that is written from now on.
func (c *corks) close() {
	for _, conn := range c.list() {
		conn.setCorked(true)
	}
}

// open sends what was held back. Later writes are no longer held back.
func (c *corks) open() {
	for _, conn := range c.list() {
		conn.setCorked(false)
	}
}

// corkedConn is a connection whose writes can be held back.
type corkedConn struct {
	net.Conn
	corks *corks

	mu       sync.Mutex
	isCorked bool
	pending  []byte
}

// Write writes, or keeps what is to be written later.
func (c *corkedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCorked {
		c.pending = append(c.pending, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *corkedConn) Close() error {
	c.corks.remove(c)
	return c.Conn.Close()
}

// setCorked begins to hold back writes, or sends those that were held back. The next read shows if that failed.
func (c *corkedConn) setCorked(corked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCorked = corked; !corked && len(c.pending) > 0 {
		_, _ = c.Conn.Write(c.pending)
		c.pending = nil
	}
}
