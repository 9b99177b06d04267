package agent

import (
	"errors"
	"io"
	"net"
	"strings"
)

// renewals is how often a request is sent again, as in net/http's HTTP/2.
const renewals = 6

// unprocessed tells whether a request did not reach the server because the connection was being closed in order:
// it is sent again by http.Transport too (shouldRetryRequest in net/http's HTTP/2). net/http has no value for
// these errors.
func unprocessed(err error) bool {
	return strings.Contains(err.Error(), "client conn not usable") || strings.Contains(err.Error(), "graceful shutdown GOAWAY")
}

// eof tells whether a connection ended in order under a request. net/http has no value for what its HTTP/2 says
// then.
func eof(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	for _, text := range []string{"connection lost", "GOAWAY", "conn could not be established", "connection is closed", "force closed", "response body closed", "shutdown", "conn is closed", "connection not usable"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}
