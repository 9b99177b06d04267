//go:build !race

package agent

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// quietConn reads and writes without telling Go's scheduler that it is in the kernel. It may do so because the socket
// does not block. Otherwise, in an idle process, the scheduler would wake the runtime's monitor, which is a thread of
// its own, for each request and each answer (sysmonwait in runtime/proc.go). The race detector does not see that one
// end of such a connection happens before the other, so tests with it use the usual connection.
type quietConn struct {
	*net.TCPConn
	raw syscall.RawConn
}

func quiet(conn net.Conn, err error) (net.Conn, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || err != nil {
		return conn, err
	}
	raw, err := tcp.SyscallConn()
	return &quietConn{tcp, raw}, err
}

// Read implements net.Conn.
func (c *quietConn) Read(b []byte) (n int, err error) {
	if n, err = call("read", syscall.SYS_READ, c.raw.Read, b); n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (c *quietConn) Write(b []byte) (sum int, err error) {
	for sum < len(b) && err == nil {
		var n int
		n, err = call("write", syscall.SYS_WRITE, c.raw.Write, b[sum:])
		sum += n
	}
	return sum, err
}

// call makes a system call on the content of b, and repeats it when the socket is ready.
func call(name string, number uintptr, whenReady func(func(fd uintptr) bool) error, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	var n uintptr
	var errno syscall.Errno
	err := whenReady(func(fd uintptr) bool {
		for {
			if n, _, errno = syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))); errno != syscall.EINTR {
				return errno != syscall.EAGAIN
			}
		}
	})
	if err == nil && errno != 0 {
		err = os.NewSyscallError(name, errno)
	}
	if err != nil {
		return 0, err
	}
	return int(n), nil
}
