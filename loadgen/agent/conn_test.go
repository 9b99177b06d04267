package agent

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// connected returns one of our connections, and the other end of it.
func connected(t *testing.T) (ours net.Conn, theirs *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if ours, err = quiet(net.Dial("tcp", listener.Addr().String())); err != nil {
		t.Fatal(err)
	}
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), other.Close() })
	return ours, other.(*net.TCPConn)
}

// TestConnWaits checks that what does not fit into the socket's buffers waits for the other end, and that nothing is
// lost.
func TestConnWaits(t *testing.T) {
	ours, theirs := connected(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // 8 MiB
	go func() {
		time.Sleep(50 * time.Millisecond) // till the writer waits
		_, _ = io.Copy(theirs, theirs)
		_ = theirs.CloseWrite()
	}()
	go func() {
		_, _ = ours.Write(sent)
		_ = ours.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if got, err := io.ReadAll(ours); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(sent), err)
	}
	if n, err := ours.Read(nil); n != 0 || err != nil {
		t.Errorf("reading nothing: %d, %v", n, err)
	}
}

// TestConnErrors checks that errors are those of package net, by which answers are counted.
func TestConnErrors(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(ours net.Conn, theirs *net.TCPConn)
		class   string
		is      error
	}{
		"ended":    {func(_ net.Conn, theirs *net.TCPConn) { _ = theirs.Close() }, "eof", io.EOF},
		"reset":    {func(_ net.Conn, theirs *net.TCPConn) { _, _ = theirs.SetLinger(0), theirs.Close() }, "reset", nil},
		"closed":   {func(ours net.Conn, _ *net.TCPConn) { _ = ours.Close() }, "eof", net.ErrClosed},
		"too late": {func(ours net.Conn, _ *net.TCPConn) { _ = ours.SetDeadline(time.Now()) }, "timeout", os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := connected(t)
			time.AfterFunc(20*time.Millisecond, func() { c.happens(ours, theirs) })
			n, err := ours.Read(make([]byte, 1))
			if n != 0 ||
				err == nil ||
				classify(err) != c.class ||
				c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("read %d, %v: %s", n, err, classify(err))
			}
			for err = nil; err == nil && c.class != "eof"; { // a connection that has ended may still read
				_, err = ours.Write(make([]byte, 1<<20))
			}
			if c.class != "eof" && classify(err) != c.class {
				t.Errorf("write: %v", err)
			}
		})
	}
}
