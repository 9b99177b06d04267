// Package kwoktest has a real kwok keep nodes for tests.
package kwoktest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Node is the annotation of the nodes that kwok keeps Ready.
const Node = "kwok.x-k8s.io/node"

// Start builds kwok's controller from its sources. Until the test ends, the controller keeps the annotated nodes of a
// cluster, and the pods on them, with its default stages.
func Start(t *testing.T, source, kubeconfig string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kwok")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=readonly", "-o", program, "./cmd/kwok")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building kwok: %v: %s", err, out)
	}
	args := []string{"--kubeconfig", kubeconfig, "--manage-nodes-with-annotation-selector", Node + "=fake"}
	for _, stage := range []string{
		"node/fast/node-initialize",
		"node/heartbeat-with-lease/node-heartbeat-with-lease",
		"pod/fast/pod-ready",
		"pod/fast/pod-delete",
	} {
		args = append(args, "--config", filepath.Join(source, "kustomize", "stage", stage+".yaml"))
	}
	kwok := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...) // it is ended in order below
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	kwok.Stdout, kwok.Stderr = log, log
	if err := kwok.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = kwok.Process.Signal(syscall.SIGTERM)
		_ = kwok.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("kwok: %s", text[max(0, len(text)-4000):])
		}
	})
}
