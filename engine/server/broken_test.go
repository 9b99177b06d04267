package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// cutter passes connections on to a server, and ends so many of them at the first bytes that a client sends.
type cutter struct {
	net.Listener
	to string

	mu   sync.Mutex
	cuts int
	open []net.Conn
}

// cut ends what is open, and the next n connections.
func (c *cutter) cut(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.cuts, c.open = n, nil
}

// ends says whether a connection is one of those.
func (c *cutter) ends(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cuts > 0 {
		c.cuts--
		return true
	}
	c.open = append(c.open, conn)
	return false
}

func (c *cutter) serve() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		go c.pass(client)
	}
}

func (c *cutter) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	if c.ends(client) {
		_, _ = client.Read(make([]byte, 1))
		return
	}
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() { _, _ = io.Copy(server, client) }()
	_, _ = io.Copy(client, server)
}

// TestBroken is about who is to blame where a request gets no answer, or no audit event: the API server, if it goes on
// answering others; if it does not, or something else went wrong, nobody knows.
func TestBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	release := local.Newest()
	started, err := Start(t.Context(), Options{
		Cell:    verdicts.Cell{Name: "broken", Provider: Local, Kubernetes: release.Version, Gate: scenarios.GateDefault},
		Release: release, Binaries: &local.Binaries{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = started.Stop() })
	started.events.missed = 4 // waits no longer than it does for a server that leaves events out
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: listener, to: strings.TrimPrefix(started.host, "https://")}
	t.Cleanup(func() { _ = listener.Close() })
	go c.serve()
	started.host = "https://" + listener.Addr().String()
	get := func() (string, error) {
		config := started.cluster.FrontProxy()
		config.NextProtos = []string{"http/1.1"} // each on a connection of its own
		client, err := started.client(config, nil, func(*http.Request) {}, asUser(scenarios.Requestor{User: "alice"}))
		if err != nil {
			return "", err
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, started.host+"/version", nil)
		if err != nil {
			return "", err
		}
		req.Close = true
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		return resp.Header.Get("Audit-Id"), resp.Body.Close()
	}
	none := func() (string, error) { return "00000000-0000-0000-0000-000000000000", nil }
	ended := func(err error) bool { return connectionEnded(err) && strings.Contains(err.Error(), "/version") }
	silent := func(err error) bool { return errors.Is(err, errNoEvent) }
	late := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	for _, x := range []struct {
		name           string
		cuts           int
		send           func() (string, error)
		broken, silent bool
		unknown        func(error) bool
	}{
		{"answered", 0, get, false, false, nil},
		{"one connection is ended, the next answered", 1, get, true, false, nil},
		{"no connection lasts", 1000, get, false, false, ended},
		{"ended by our side", 0, func() (string, error) { return "", context.DeadlineExceeded }, false, false, late},
		{"no audit event, and the next has one", 0, none, false, true, nil},
		{"no audit event, and no answer to the next", 1, none, false, false, silent},
	} {
		t.Run(x.name, func(t *testing.T) {
			c.cut(x.cuts)
			var o verdicts.Observation
			err := started.Observe(t.Context(), &o, func() (err error) {
				o.Response.AuditID, err = x.send()
				return err
			})
			switch {
			case x.unknown != nil &&
				(err == nil || !x.unknown(err)):
				t.Errorf("it is known what happened: %+v, %v", o, err)
			case x.unknown != nil:
			case err != nil:
				t.Error(err)
			case (o.Response.Broken != "") != x.broken || (o.NoAudit != "") != x.silent:
				t.Errorf("broken %q, no audit %q", o.Response.Broken, o.NoAudit)
			}
		})
	}
}
