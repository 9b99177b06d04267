package deputy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

var errNotOffered = errors.New("HTTP/2 is not offered")

// dial opens a connection. A client certificate and a local address are used if they are given.
func dial(
	ctx context.Context,
	to *url.URL,
	config *tls.Config,
	cert *tls.Certificate,
	protocol string,
	wait time.Duration,
	from net.Addr,
) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	dialer := &net.Dialer{LocalAddr: from}
	if to.Scheme != "https" {
		return dialer.DialContext(ctx, "tcp", to.Host)
	}
	config = config.Clone()
	if config.NextProtos = []string{protocol}; cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	conn, err := (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", to.Host)
	if protocol != http2.NextProtoTLS {
		return conn, err
	}
	if err != nil {
		if strings.Contains(err.Error(), "no application protocol") {
			err = errNotOffered
		}
		return conn, err
	}
	if conn.(*tls.Conn).ConnectionState().NegotiatedProtocol != protocol {
		err = errors.Join(errNotOffered, conn.Close())
	}
	return conn, err
}

// resetConn closes a connection in such a way that its port can be used again at once.
func resetConn(conn net.Conn) {
	raw := conn
	if tlsConn, ok := conn.(*tls.Conn); ok {
		raw = tlsConn.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}
