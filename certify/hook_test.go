package certify

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestHookLeavesNothing runs a hook that ends and leaves a process behind. That process has to end too.
func TestHookLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	hook, survived := filepath.Join(folder, "hook"), filepath.Join(folder, "survived")
	script := "#!/bin/sh\ncat >/dev/null\n(sleep 1; touch " + survived + ") >/dev/null 2>&1 &\n"
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := RunHook(t.Context(), hook, []byte("{}"), io.Discard); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	if _, err := os.Stat(survived); err == nil {
		t.Error("what the hook left behind goes on")
	}
}
