package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

const loopback = "127.0.0.1"

// handedOut are the ports this process has given to a control plane. A port is free again before
// its control plane listens on it, so the kernel alone could give it out twice.
var handedOut = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePort returns a loopback port nobody listens on and that this process has never handed out.
func freePort() (int, error) {
	handedOut.Lock()
	defer handedOut.Unlock()
	// The kernel has some 28,000 ports to choose from; meeting only known ones means that they are used up.
	for range 1000 {
		port, err := unusedPort(0)
		if err != nil {
			return 0, err
		}
		if !handedOut.ports[port] {
			handedOut.ports[port] = true
			return port, nil
		}
	}
	return 0, errors.New("no free loopback port found")
}

// claimPort checks that a port asked for is free, and keeps it from being handed out.
func claimPort(port int) error {
	if port < 1 || port > 65535 {
		return &UsageError{Problem: fmt.Sprintf("port %d does not exist", port), Hint: "use 1 to 65535, or 0 for a free one"}
	}
	handedOut.Lock()
	defer handedOut.Unlock()
	if _, err := unusedPort(port); err != nil {
		return portError(port, err)
	}
	handedOut.ports[port] = true
	return nil
}

func unusedPort(port int) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// portError explains why a port asked for cannot be used.
func portError(port int, err error) error {
	reason := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE), lostPort(err):
		reason = "something listens on it already"
	case errors.Is(err, syscall.EACCES):
		reason = "this user may not listen on it"
	}
	return &UsageError{
		Problem: fmt.Sprintf("port %d on %s cannot be used: %s", port, loopback, reason),
		Hint:    "choose another port, or none to get a free one",
		Err:     err,
	}
}
