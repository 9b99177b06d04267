package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/authzconf/authzconf/internal/usage"
)

func wantUsageError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !usage.Is(err) {
		t.Fatalf("got %v, want a usage.Error", err)
	}
	wantText(t, err, parts...)
}

func wantProcessError(t *testing.T, err error, parts ...string) *ProcessError {
	t.Helper()
	var failed *ProcessError
	if usage.Is(err) || !errors.As(err, &failed) {
		t.Fatalf("got %v, want a ProcessError", err)
	}
	wantText(t, err, parts...)
	return failed
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in the message:\n%v", part, err)
		}
	}
	if n := strings.Count(err.Error(), "\n"); n > errorLogLines+2 {
		t.Errorf("the message has %d lines:\n%v", n, err)
	}
}

// startFails starts a control plane that must not start, and proves that nothing is left of it.
func startFails(ctx context.Context, t *testing.T, o Options) error {
	t.Helper()
	needPrograms(t)
	state := t.TempDir()
	t.Setenv(StateVariable, state)
	o.Binaries = testBinaries
	c, err := Start(ctx, o)
	if err == nil {
		_ = c.Stop()
		t.Fatal("it started")
	}
	t.Logf("%v", err)
	if left, _ := filepath.Glob(filepath.Join(state, runPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if left := processesIn(state); len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
	}
	if left := ownGoroutines(); left != "" {
		t.Errorf("goroutines left behind:\n%s", left)
	}
	return err
}

func TestRefusedRequests(t *testing.T) {
	for name, test := range map[string]struct {
		o     Options
		parts []string
	}{
		"unknown gate": {Options{FeatureGates: map[string]bool{"NoSuchGate": true}}, []string{"unrecognized feature gate: NoSuchGate", "spelling"}},
		"gate newer than the emulated version": {
			Options{EmulatedVersion: "1.34", FeatureGates: map[string]bool{"ConstrainedImpersonation": true}},
			[]string{"cannot set feature gate ConstrainedImpersonation"},
		},
		"emulated version too old":    {Options{EmulatedVersion: "1.20"}, []string{"emulation version 1.20 is not between"}},
		"emulated version too new":    {Options{EmulatedVersion: "1.99"}, []string{"cannot emulate", "1.99"}},
		"emulated version a patch":    {Options{EmulatedVersion: "1.36.1"}, []string{"1.36.1"}},
		"unknown argument":            {Options{KubeAPIServerArgs: []string{"--no-such-flag"}}, []string{"unknown flag: --no-such-flag"}},
		"broken authorization config": {Options{AuthorizationConfig: []byte("kind: Nonsense")}, []string{"AuthorizationConfiguration", "apiVersion"}},
		"broken audit policy":         {Options{AuditPolicy: []byte("kind: Nonsense")}, []string{"loading audit policy file"}},
		"no such port":                {Options{Port: 70000}, []string{"70000"}},
		"file outside":                {Options{Files: map[string][]byte{"../x": nil}}, []string{"../x"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantUsageError(t, startFails(t.Context(), t, test.o), test.parts...)
		})
	}
}

func TestBusyPort(t *testing.T) {
	listener, err := net.Listen("tcp4", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	wantUsageError(
		t,
		startFails(t.Context(), t, Options{Port: port}),
		fmt.Sprintf("port %d", port),
		"listens on it already",
		"choose another",
	)
}

// TestPortLostToAnother checks that a requested port may be lost between the check and kube-apiserver's own attempt.
func TestPortLostToAnother(t *testing.T) {
	lost := `echo 'E1121 02:17:15.965099     602 run.go:72] "command failed" err="failed to create listener: failed to listen on 127.0.0.1:1: listen tcp 127.0.0.1:1: bind: address already in use"' >&2; exit 1`
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("asked for", func(t *testing.T) {
		err := startFails(t.Context(), t, Options{Port: port, KubeAPIServerPath: script(t, lost)})
		wantUsageError(t, err, fmt.Sprintf("port %d", port), "choose another")
	})
	t.Run("free, every time", func(t *testing.T) {
		err := startFails(t.Context(), t, Options{KubeAPIServerPath: script(t, lost)})
		_ = wantProcessError(t, err, "address already in use")
	})
	t.Run("free, the first time", func(t *testing.T) {
		marker := filepath.Join(t.TempDir(), "marker")
		genuine := programs(t).KubeAPIServer.Path
		c := startPlane(t, Options{KubeAPIServerPath: script(t,
			fmt.Sprintf("if [ -e %s ]; then exec %s \"$@\"; fi; touch %s; %s", marker, genuine, marker, lost))})
		if !exists(marker) || c.Err() != nil {
			t.Errorf("no second attempt was made, or %v", c.Err())
		}
	})
}

func TestProcessesThatDoNotStart(t *testing.T) {
	broken := script(t, `echo "one line"; echo "another line" >&2; exit 7`)
	t.Run("kube-apiserver dies", func(t *testing.T) {
		err := startFails(t.Context(), t, Options{KubeAPIServerPath: broken})
		_ = wantProcessError(t, err, "kube-apiserver", "exit status 7", "one line", "another line")
	})
	t.Run("kube-apiserver panics", func(t *testing.T) {
		err := startFails(t.Context(), t, Options{KubeAPIServerPath: script(t,
			`for i in $(seq 300); do echo "noise $i" >&2; done; echo "panic: oh no" >&2; echo "goroutine 1" >&2; exit 2`)})
		failed := wantProcessError(t, err, "panic: oh no", "exit status 2")
		if failed.Reason != "panic: oh no" || len(failed.LogTail) != errorLogLines {
			t.Errorf("reason %q, %d lines", failed.Reason, len(failed.LogTail))
		}
	})
	t.Run("etcd dies", func(t *testing.T) {
		_ = wantProcessError(t, startFails(t.Context(), t, Options{EtcdPath: broken}), "etcd", "exit status 7", "one line")
	})
	t.Run("etcd hangs", func(t *testing.T) {
		err := startFails(t.Context(), t, Options{EtcdPath: script(t, "exec sleep 60"), ReadyTimeout: 100 * time.Millisecond})
		_ = wantProcessError(t, err, "etcd", "not ready within 100ms", "it logged nothing")
	})
	t.Run("kube-apiserver hangs", func(t *testing.T) {
		// etcd has the same time to get ready, also on a machine that is busy.
		hangs, etcd := script(t, "exec sleep 60"), script(t, "touch "+etcdSocket+"; exec sleep 60")
		err := startFails(t.Context(), t, Options{EtcdPath: etcd, KubeAPIServerPath: hangs, ReadyTimeout: 2 * time.Second})
		_ = wantProcessError(t, err, "kube-apiserver", "not ready within 2s")
	})
	t.Run("no program", func(t *testing.T) {
		_ = wantProcessError(
			t,
			startFails(t.Context(), t, Options{KubeAPIServerPath: "/no/such/program"}),
			"kube-apiserver: could not be started",
		)
	})
	t.Run("out of time", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		within(t, 2*time.Second, "the canceled start", func(context.Context) {
			if err := startFails(ctx, t, Options{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		err := startFails(ctx, t, Options{})
		var failed *ProcessError
		if !errors.Is(err, context.Canceled) || errors.As(err, &failed) {
			t.Errorf("got %v, want a cancellation that blames nobody", err)
		}
	})
}

func TestProcessesThatDieHalfWay(t *testing.T) {
	for name, pick := range map[string]func(PIDs) int{
		"kube-apiserver": func(p PIDs) int { return p.KubeAPIServer },
		"etcd":           func(p PIDs) int { return p.Etcd },
	} {
		t.Run(name, func(t *testing.T) {
			c := startPlane(t, Options{})
			select {
			case <-c.Done():
				t.Fatal("done too early")
			default:
			}
			if err := c.Err(); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pick(c.PIDs()), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("Done is not closed")
			}
			failed := wantProcessError(t, c.Err(), name, "ended by itself (signal: killed)", "log lines")
			if failed.Process != name || len(failed.LogTail) == 0 {
				t.Errorf("%+v", failed)
			}
			if pick(c.PIDs()) != 0 {
				t.Error("the dead process is still listed")
			}
			if err := c.RestartAPIServer(t.Context(), nil); err == nil {
				t.Error("it was restarted")
			}
			within(t, 5*time.Second, "Stop", func(context.Context) {
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
			})
			if c.Err() == nil {
				t.Error("the failure is forgotten after Stop")
			}
		})
	}
}

// TestStopDuringRestart checks that a stop in the middle of a restart ends both at once.
func TestStopDuringRestart(t *testing.T) {
	c := startPlane(t, Options{})
	old, hanging, done := c.PIDs().KubeAPIServer, script(t, "exec sleep 60"), make(chan error, 1)
	go func() {
		done <- c.RestartAPIServer(t.Context(), func(o *Options) { o.KubeAPIServerPath = hanging })
	}()
	eventually(t, 30*time.Second, "the new API server has been started", func() bool {
		pid := c.PIDs().KubeAPIServer
		return pid != 0 && pid != old
	})
	within(t, 5*time.Second, "Stop", func(context.Context) {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := <-done; !errors.Is(err, ErrStopped) {
		t.Errorf("the restart returned %v", err)
	}
}

type brokenSink struct{}

func (brokenSink) Write([]byte) (int, error) { return 0, errors.New("sink is full") }

func TestBrokenAuditSink(t *testing.T) {
	needPrograms(t)
	c, err := Start(t.Context(), Options{AuditPolicy: []byte(auditAll), AuditSink: brokenSink{}, Binaries: testBinaries})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "sink is full") {
		t.Errorf("Err: %v", err)
	}
	if whoAmI(t, c.Admin()).Username != adminName {
		t.Error("the API server no longer answers")
	}
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "sink is full") {
		t.Errorf("Stop: %v", err)
	}
}

func TestRunFolder(t *testing.T) {
	t.Run("state root cannot be written", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		found := programs(t)
		t.Setenv(StateVariable, file)
		_, err := Start(t.Context(), Options{EtcdPath: found.Etcd.Path, KubeAPIServerPath: found.KubeAPIServer.Path})
		wantUsageError(t, err, file, StateVariable)
	})
}
