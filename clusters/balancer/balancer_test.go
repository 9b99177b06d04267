package balancer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const patience = 5 * time.Second

// echo is a backend that sends its name, which is one letter, and then repeats what it receives until the end.
type echo struct {
	addr  string
	stop  func()
	heard chan string // everything that a client sent, at its end

	accepted atomic.Int64
}

func newEcho(t *testing.T, name string) *echo {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: l.Addr().String(), heard: make(chan string, 10)}
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.accepted.Add(1)
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			running.Go(func() {
				defer func() { _ = c.Close() }()
				var heard strings.Builder
				_, _ = io.WriteString(c, name)
				_, _ = io.Copy(c, io.TeeReader(c, &heard))
				select {
				case e.heard <- heard.String():
				default: // nobody wants to know
				}
			})
		}
	})
	e.stop = sync.OnceFunc(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	t.Cleanup(e.stop)
	return e
}

// startBalancer starts a balancer, and proves at the end that nothing of it is left.
func startBalancer(t *testing.T, backends ...string) *Balancer {
	t.Helper()
	b, err := Start(backends...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		wantNoGoroutines(t)
	})
	return b
}

// wantNoGoroutines fails if goroutines of a balancer remain. It waits a moment, because one that is finished still has
// to return.
func wantNoGoroutines(t *testing.T) {
	t.Helper()
	var left []string
	for range 100 {
		buffer := make([]byte, 1<<20)
		left = left[:0]
		for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
			if strings.Contains(stack, "balancer.(*Balancer)") || strings.Contains(stack, "balancer.pass") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
}

// talk opens a connection and returns the backend's name, "" if it was closed.
func talk(t *testing.T, b *Balancer) (*net.TCPConn, string) {
	t.Helper()
	c, err := net.Dial("tcp4", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	name, err := hear(c)
	if err != nil && !closed(err) {
		t.Fatalf("it is neither answered nor closed: %v", err)
	}
	return c.(*net.TCPConn), name
}

func hear(c net.Conn) (string, error) {
	letter := make([]byte, 1)
	n, err := io.ReadFull(c, letter)
	return string(letter[:n]), err
}

func closed(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

func wantEcho(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if got, err := hear(c); got != "x" {
		t.Errorf("heard %q, %v", got, err)
	}
}

// names opens n connections one after the other and returns whom they reached.
func names(t *testing.T, b *Balancer, n int) string {
	t.Helper()
	var out strings.Builder
	for range n {
		c, name := talk(t, b)
		_ = c.Close()
		if name == "" {
			name = "-"
		}
		out.WriteString(name)
	}
	return out.String()
}

func TestInTurn(t *testing.T) {
	a, b, c := newEcho(t, "a"), newEcho(t, "b"), newEcho(t, "c")
	for _, test := range []struct {
		name     string
		backends []string
		down     *echo
		want     string
	}{
		{"none", nil, nil, "--"},
		{"one", []string{a.addr}, nil, "aaa"},
		{"three", []string{a.addr, b.addr, c.addr}, nil, "abcabca"},
		{"one of three refuses", []string{a.addr, b.addr, c.addr}, b, "acacac"},
		{"the only one refuses", []string{b.addr}, b, "--"},
		{"no address", []string{"nowhere", a.addr}, nil, "aaa"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.down != nil {
				test.down.stop()
			}
			lb := startBalancer(t, test.backends...)
			if got := names(t, lb, len(test.want)); got != test.want {
				t.Errorf("reached %s, want %s", got, test.want)
			}
		})
	}
}

// TestSet checks that a backend that is removed gets nothing new, and that open connections go on.
func TestSet(t *testing.T) {
	a, b := newEcho(t, "a"), newEcho(t, "b")
	lb := startBalancer(t, a.addr, b.addr)
	toA, nameA := talk(t, lb)
	toB, nameB := talk(t, lb)
	if nameA != "a" || nameB != "b" {
		t.Fatalf("reached %q and %q", nameA, nameB)
	}
	lb.Set(b.addr)
	wantEcho(t, toA)
	wantEcho(t, toB)
	if got := names(t, lb, 3); got != "bbb" {
		t.Errorf("without a, reached %s", got)
	}
	// The backend is added again, as after a restart.
	lb.Set(a.addr, b.addr)
	if got := names(t, lb, 4); got != "abab" && got != "baba" {
		t.Errorf("with both again, reached %s", got)
	}
}

// TestHalfClosed checks that each direction of a connection can end without the other.
func TestHalfClosed(t *testing.T) {
	a := newEcho(t, "a")
	lb := startBalancer(t, a.addr)
	c, _ := talk(t, lb)
	long := strings.Repeat("0123456789", 100_000)
	go func() {
		_, _ = io.WriteString(c, long)
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != long {
		t.Errorf("heard %d bytes of %d, %v", len(got), len(long), err)
	}
	if heard := <-a.heard; heard != long {
		t.Errorf("the backend heard %d bytes of %d", len(heard), len(long))
	}
}

// TestOneSideDies checks that a connection ends with its backend, and that a backend notices a client that is gone.
func TestOneSideDies(t *testing.T) {
	a, b := newEcho(t, "a"), newEcho(t, "b")
	lb := startBalancer(t, a.addr, b.addr)
	toA, _ := talk(t, lb)
	toB, _ := talk(t, lb)
	a.stop()
	if got, err := hear(toA); !closed(err) {
		t.Errorf("a connection whose backend died: %q, %v", got, err)
	}
	wantEcho(t, toB)
	if err := toB.SetLinger(0); err != nil { // Close resets it
		t.Fatal(err)
	}
	_ = toB.Close()
	select {
	case <-b.heard:
	case <-time.After(patience):
		t.Error("the backend still waits for a client that is gone")
	}
}

func TestClose(t *testing.T) {
	a := newEcho(t, "a")
	lb, err := Start(a.addr)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := talk(t, lb)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := lb.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	all.Wait()
	if got, err := hear(c); !closed(err) {
		t.Errorf("an open connection after Close: %q, %v", got, err)
	}
	if c, err := net.Dial("tcp4", lb.Addr()); err == nil {
		_ = c.Close()
		t.Error("it listens after Close")
	}
	lb.Set(a.addr)
	wantNoGoroutines(t)
}

// TestManyAtOnce does everything at the same time, for the race detector. Each connection is complete or closed, and
// none is lost or counted twice.
func TestManyAtOnce(t *testing.T) {
	a, b := newEcho(t, "a"), newEcho(t, "b")
	lb := startBalancer(t, a.addr, b.addr)
	const clients, each = 8, 20
	var running sync.WaitGroup
	errs := make(chan error, clients)
	for range clients {
		running.Go(func() {
			for range each {
				if err := exchange(lb.Addr()); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	changes := make(chan struct{})
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-changes:
				return
			case <-time.After(time.Millisecond):
			}
			lb.Set([][]string{{a.addr}, {b.addr}, {b.addr, a.addr}}[i%3]...)
		}
	})
	time.AfterFunc(50*time.Millisecond, func() { close(changes) })
	running.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	// A backend that is removed while it is dialled accepts a connection that carries nothing.
	if n := a.accepted.Load() + b.accepted.Load(); n < clients*each {
		t.Errorf("passed %d, want at least %d in all", n, clients*each)
	}
}

// exchange sends a word through a connection and receives it again.
func exchange(addr string) error {
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(4 * patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "word"); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err != nil || len(got) != 5 || string(got[1:]) != "word" {
		return fmt.Errorf("heard %q, %w", got, err)
	}
	return nil
}
