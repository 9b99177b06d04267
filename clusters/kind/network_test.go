package kind

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestListen checks that a client from outside of the network is disconnected before a byte is read.
func TestListen(t *testing.T) {
	for name, tc := range map[string]struct {
		subnet string
		served bool
	}{"member": {"127.0.0.0/8", true}, "stranger": {"172.18.0.0/16", false}} {
		t.Run(name, func(t *testing.T) {
			n := Network{Gateway: netip.MustParseAddr("127.0.0.1"), Subnet: netip.MustParsePrefix(tc.subnet)}
			l, err := n.Listen(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = c.Write([]byte("hello"))
					_ = c.Close()
				}
			}()
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			got := make([]byte, 5)
			if n, err := c.Read(got); (n > 0) != tc.served {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}

// sink is a buffer for one goroutine to write and another to read.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var s sink
	f, err := follow(path, &s)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := writer.WriteString(line); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); !bytes.HasSuffix([]byte(s.String()), []byte(line)); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q did not arrive; there is %q", line, s.String())
			}
		}
	}
	if err := f.stop(); err != nil {
		t.Error(err)
	}
}

// TestState checks that a cluster is in use as long as the process that created it lives, and that a name is never used
// twice.
func TestState(t *testing.T) {
	t.Setenv("AUTHZCONF_STATE", t.TempDir())
	name, s, err := newState("x")
	if err != nil {
		t.Fatal(err)
	}
	other, o, err := newState("x")
	if err != nil || other == name {
		t.Fatalf("%s, %v", other, err)
	}
	if !inUse(name) || inUse("authzconf-nobody") {
		t.Error("who lives is not in use, or nobody is")
	}
	if err := o.leave(false); err != nil {
		t.Error(err)
	}
	if err := s.leave(true); err != nil {
		t.Error(err)
	}
	if inUse(name) {
		t.Error("a kept cluster counts as in use")
	}
	if err := removeState(name); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.path); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// TestNoEngine checks that every error says what to do.
func TestNoEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	if err := CheckEngine(context.Background()); err == nil {
		t.Error("there is an engine")
	}
	t.Setenv("PATH", t.TempDir())
	if err := CheckEngine(context.Background()); err == nil {
		t.Error("there is a program docker")
	}
}
