package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type failingRestart struct {
	name   string
	change func(*Options)
	check  func(*testing.T, error)
}

func failingRestarts(t *testing.T, crash string) []failingRestart {
	t.Helper()
	return []failingRestart{
		{
			"refuses its arguments",
			func(o *Options) { o.KubeAPIServerArgs = []string{"--no-such-flag"} },
			func(t *testing.T, err error) { wantUsageError(t, err, "unknown flag: --no-such-flag") },
		},
		{
			"crashes, on another port",
			func(o *Options) { o.KubeAPIServerPath, o.Port = crash, 0; o.Port, _ = freePort() },
			func(t *testing.T, err error) {
				_ = wantProcessError(t, err, "panic: oh no", "first words", "exit status 2")
			},
		},
		{
			"does not get ready",
			func(o *Options) {
				o.KubeAPIServerPath, o.ReadyTimeout = script(t, "echo waiting; exec sleep 60"), time.Second
			},
			func(t *testing.T, err error) { _ = wantProcessError(t, err, "not ready within 1s", "waiting") },
		},
		{
			"cannot be started",
			func(o *Options) { o.KubeAPIServerPath = filepath.Join(t.TempDir(), "nothing") },
			func(t *testing.T, err error) { _ = wantProcessError(t, err, "could not be started") },
		},
	}
}

// TestRestartsThatFail checks that after a failed restart no API server runs, no death is reported, and the restart can
// be repeated or the control plane stopped.
func TestRestartsThatFail(t *testing.T) {
	c := startPlane(t, Options{})
	port := c.Port()
	write(t, c, "survivor")
	crash := script(t, `echo "first words"; echo "panic: oh no" >&2; exit 2`)
	for _, test := range failingRestarts(t, crash) {
		err := c.RestartAPIServer(t.Context(), test.change)
		if err == nil {
			t.Fatalf("%s: it was restarted", test.name)
		}
		test.check(t, err)
		var failed *ProcessError
		if !errors.As(err, &failed) ||
			(len(failed.LogTail) == 0 && failed.PID != 0) {
			t.Errorf("%s: there is no log in %#v", test.name, err)
		}
		if o := c.Options(); c.PIDs().KubeAPIServer != 0 || c.PIDs().Etcd == 0 || c.Port() != port || len(o.KubeAPIServerArgs) > 0 ||
			o.KubeAPIServerPath != "" {
			t.Errorf("%s: afterwards %+v, port %d, %+v", test.name, c.PIDs(), c.Port(), o)
		}
		wantWhole(t, c)
	}
	// Without an API server there is none to wait for.
	timed(t, "etcd without an API server", func() error { return c.RestartEtcd(t.Context()) })
	if err := c.KillAPIServer(); err != nil {
		t.Errorf("killing what does not run: %v", err)
	}
	timed(t, "rollback", func() error { return c.RestartAPIServer(t.Context(), nil) })
	read(t, c, "survivor")
	if c.Port() != port {
		t.Errorf("port %d, want %d", c.Port(), port)
	}

	// What is wrong beforehand does not affect the API server.
	listener, err := net.Listen("tcp4", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	running := c.PIDs()
	err = c.RestartAPIServer(t.Context(), func(o *Options) { o.Port = listener.Addr().(*net.TCPAddr).Port })
	wantUsageError(t, err, "listens on it already")
	if c.PIDs() != running || c.Port() != port {
		t.Errorf("a refused restart: processes %v → %v, port %d", running, c.PIDs(), c.Port())
	}

	if err := c.RestartAPIServer(t.Context(), func(o *Options) { o.KubeAPIServerPath = crash }); err == nil {
		t.Error("it was restarted")
	}
	if err := c.Stop(); err != nil || exists(c.Dir()) || processesIn(c.Dir()) != nil {
		t.Errorf("Stop after a restart that failed: %v", err)
	}
	if left := ownGoroutines(); left != "" {
		t.Errorf("goroutines left:\n%s", left)
	}
}

// etcdOnce is an etcd that starts once, and then does something else.
func etcdOnce(t *testing.T, then string) string {
	t.Helper()
	marker := filepath.Join(t.TempDir(), "marker")
	return script(t, fmt.Sprintf(`if [ -e %s ]; then %s; fi; touch %s; exec %s "$@"`, marker, then, marker, programs(t).Etcd.Path))
}

func TestEtcdThatDoesNotComeBack(t *testing.T) {
	a := startPlane(t, Options{EtcdPath: etcdOnce(t, "echo broken data >&2; exit 7")})
	b := startPlane(t, Options{Join: a})
	_ = wantProcessError(t, a.RestartEtcd(t.Context()), "etcd", "exit status 7", "broken data")
	for _, c := range []*ControlPlane{a, b} {
		wantDone(t, c)
		_ = wantProcessError(t, c.Err(), "etcd", "exit status 7", "broken data")
		if err := c.RestartEtcd(t.Context()); err == nil {
			t.Error("it was restarted once more")
		}
	}
}

// TestStopDuringEtcdRestart checks that a stop while etcd is away ends both at once.
func TestStopDuringEtcdRestart(t *testing.T) {
	c := startPlane(t, Options{EtcdPath: etcdOnce(t, "exec sleep 60")})
	old, done := c.PIDs().Etcd, make(chan error, 1)
	go func() { done <- c.RestartEtcd(t.Context()) }()
	eventually(t, 10*time.Second, "the new etcd has been started", func() bool {
		pid := c.PIDs().Etcd
		return pid != 0 && pid != old
	})
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 30*time.Second { // half as long as the new etcd would have run
		t.Errorf("Stop took %s", took)
	}
	if err := <-done; !errors.Is(err, ErrStopped) || c.Err() != nil {
		t.Errorf("the restart returned %v, Err is %v", err, c.Err())
	}
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
