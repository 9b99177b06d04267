package local

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// TestMain gives all tests a state root of their own, and turns the test binary into a helper
// process when a test starts it as one.
func TestMain(m *testing.M) {
	if mode := os.Getenv(helperVariable); mode != "" {
		helperMain(mode)
		return
	}
	state, err := os.MkdirTemp("", "authzconf-state-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv(StateVariable, state)
	code := m.Run()
	if left := processesIn(state); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes left behind: %v\n", left)
		code = 1
	}
	_ = os.RemoveAll(state)
	os.Exit(code)
}

// testBinaries are shared by all tests, so that everything is built only once.
var testBinaries = &Binaries{Progress: os.Stderr}

// startPlane starts a control plane that is stopped at the end of the test.
func startPlane(t *testing.T, o Options) *ControlPlane {
	t.Helper()
	needPrograms(t)
	if o.Binaries == nil {
		o.Binaries = testBinaries
	}
	begin := time.Now()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready in %s", time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return c
}

func needPrograms(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
}

// programs returns the real programs.
func programs(t *testing.T) Programs {
	t.Helper()
	needPrograms(t)
	o, err := Options{Binaries: testBinaries}.complete()
	if err != nil {
		t.Fatal(err)
	}
	out, err := findPrograms(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// within runs f and fails the test when it takes too long.
func within(t *testing.T, limit time.Duration, what string, f func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	f(ctx)
	if took := time.Since(begin); took > limit {
		t.Errorf("%s took %s, more than %s", what, took, limit)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so within %s: %s", limit, what)
		}
	}
}

// script writes an executable shell script that replaces a program.
func script(t *testing.T, body string) string {
	t.Helper()
	path := t.TempDir() + "/script"
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
