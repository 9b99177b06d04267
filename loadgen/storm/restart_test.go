package storm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// TestServerThatDoesNotComeBack checks that an API server that a profile restarts and that never comes back is
// reported. The run then ends, and keeps what it has seen.
func TestServerThatDoesNotComeBack(t *testing.T) {
	program, err := (&local.Binaries{}).KubeAPIServer(t.Context(), newest())
	if err != nil {
		t.Fatal(err)
	}
	marker, once := filepath.Join(t.TempDir(), "marker"), filepath.Join(t.TempDir(), "once")
	script := fmt.Sprintf(
		"#!/bin/sh\nif [ -e %s ]; then echo broken data >&2; exit 7; fi; touch %s; exec %s \"$@\"\n",
		marker,
		marker,
		program,
	)
	if err := os.WriteFile(once, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("TEST_ASSET_KUBE_APISERVER", once)

	p := burst(profile.Comparison{Name: "aa", A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)})
	p.Arrivals = profile.Arrivals{Kind: "constant", Every: time.Second}
	p.Block, p.Pairs = 4*time.Second, 5
	p.Event = profile.Event{Kind: profile.Restart, After: time.Second}
	out := executeStorm(t.Context(), t, p, nil)
	if len(out.Blocks) > 1 || len(out.Problems) == 0 {
		t.Fatalf("%d blocks, problems %v", len(out.Blocks), out.Problems)
	}
	if text := out.Problems[0].Text; !strings.Contains(text, "did not come back after its restart") ||
		!strings.HasSuffix(text, "(exit status 7)") {
		t.Errorf("the problem is %q", text)
	}
}

// TestCountsBeforeRestart checks that what an API server had counted when it was restarted is not lost: the requests of a block that
// it answered before the restart are among those of its own indicator.
func TestCountsBeforeRestart(t *testing.T) {
	p := burst(profile.Comparison{Name: "aa", A: side("none", profile.GateOffServer), B: side("none", profile.GateOffServer)})
	p.Arrivals = profile.Arrivals{Kind: "constant", Every: 500 * time.Millisecond}
	p.Block, p.Pairs = 10*time.Second, 1
	p.Event = profile.Event{Kind: profile.Restart, After: 5 * time.Second}
	out := executeStorm(t.Context(), t, p, nil)
	if len(out.Blocks) == 0 || len(out.Problems) > 0 {
		t.Fatalf("%d blocks, problems %v", len(out.Blocks), out.Problems)
	}
	for _, b := range out.Blocks {
		var served int64
		for _, s := range b.Served {
			served += s.Count
		}
		// Requests that are answered between the last count and the end of the process are lost.
		if answered := b.Answers["200"]; served < answered*8/10 {
			t.Errorf("the API server counted %d requests of a block in which %d were answered", served, answered)
		}
	}
}
