package conformance_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/conformance/matrix/matrixtest"
	"github.com/authzconf/authzconf/engine/product"
	"github.com/authzconf/authzconf/engine/recorder"
	"github.com/authzconf/authzconf/reports/record"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// waiting is a scenario that sleeps long enough for something to break.
const waiting = `
description: Two requests with a pause.
source: {document: test, section: faults}
level: core
requires: {gate: any}
requestors:
  alice: {user: alice}
steps:
  - request: {by: alice, verb: get, path: /version}
    expect: {outcome: allowed, code: 200}
  - wait: 30s
  - request: {by: alice, verb: get, path: /version}
    expect: {outcome: allowed, code: 200}
`

// TestFaults breaks one part of a target in the middle of a scenario. The
// verdict has to be invalid, soon, and to say what broke.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	tests := map[string]struct {
		breakIt func(t *testing.T, l net.Listener)
		reason  string
	}{
		"kube-apiserver dies": {func(t *testing.T, _ net.Listener) { killChild(t, "kube-apiserver") }, "kube-apiserver"},
		"etcd dies":           {func(t *testing.T, _ net.Listener) { killChild(t, "etcd") }, "etcd"},
		"recorder stops": {func(t *testing.T, l net.Listener) {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}, "recorder: stopped serving"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, listener)
			time.Sleep(500 * time.Millisecond) // the first request is through by now, or not: both are in the middle
			test.breakIt(t, listener)
			result, err := s.Cells[0].Result(t.Context(), "waits")
			if err != nil {
				t.Fatal(err)
			}
			if result.Verdict != verdicts.Invalid || !strings.Contains(result.Reason, test.reason) {
				t.Errorf("verdict %s: %s", result.Verdict, result.Reason)
			}
			if result.Blame != verdicts.BlameEnvironment {
				t.Errorf("blame %s", result.Blame)
			}
		})
	}
}

// start starts a session with the waiting scenario on one cell.
func start(t *testing.T, l net.Listener) *conformance.Session {
	t.Helper()
	set, err := scenarios.Load(fstest.MapFS{"waits.yaml": {Data: []byte(waiting)}}, fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	cells := matrixtest.NewestCells(t, scenarios.GateDefault)
	cells[0].Recorder = recorder.Options{Listener: l}
	plan, err := conformance.PlanCells(set, cells, conformance.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	s := conformance.New(
		plan,
		conformance.Output{Seed: 1, Log: record.New(), Observer: product.Observer{Say: func(text string) { t.Log(text) }}},
	)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		if err := s.Stop(); err != nil {
			t.Logf("stopping: %v", err) // the fault may show here again
		}
	})
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// killChild kills the child process that runs a program.
func killChild(t *testing.T, program string) {
	t.Helper()
	pids := childrenThatRun(t, program)
	if len(pids) == 0 {
		t.Fatalf("no child process runs %s", program)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// childrenThatRun are the child processes that run a program.
func childrenThatRun(t *testing.T, program string) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stats {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it ended meanwhile
		}
		name, rest, _ := strings.Cut(string(raw), ") ")
		fields := strings.Fields(rest) // state, parent, …
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) || !strings.Contains(name, "("+program[:min(4, len(program))]) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
