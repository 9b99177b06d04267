package agent

import (
	"errors"
	"io"
	"net"
	"strings"
)

// eof tells whether a connection ended in order under a request. net/http has no
// value for what its HTTP/2 says then.
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
