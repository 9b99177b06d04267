package server

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// imageVariable names the node image that tests with a real cluster of kind use.
// make kind-conformance sets it.
const imageVariable = "AUTHZCONF_KIND_NODE_IMAGE"

// kindServer is a server with the gate on.
func kindServer(t *testing.T) Options {
	t.Helper()
	image := os.Getenv(imageVariable)
	if image == "" {
		t.Skipf("%s is not set: make kind-conformance builds an image and runs this", imageVariable)
	}
	version, err := kind.ImageVersion(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	release, err := local.ParseRelease(version)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Cell:    verdicts.Cell{Name: "test", Provider: Kind, Kubernetes: release.Version, Gate: scenarios.GateOn},
		Release: release, NodeImage: image,
	}
}

// TestKindWrongGate: a cluster whose gate is not what was asked for says so, and
// nothing is left of it afterwards.
func TestKindWrongGate(t *testing.T) {
	o := kindServer(t)
	target, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = target.Stop() }()
	if len(target.Witness.Mismatches) > 0 {
		t.Fatalf("as asked for, but %q", target.Witness.Mismatches)
	}
	cluster := target.cluster.(*kind.Cluster)
	if leftovers, err := kind.Leftovers(t.Context()); err != nil || strings.Contains(strings.Join(leftovers, " "), cluster.Name()) {
		t.Errorf("a cluster in use counts as left over: %q, %v", leftovers, err)
	}
	err = cluster.RestartAPIServer(t.Context(), func(ko *kind.Options) { ko.FeatureGates = map[string]bool{GateName: false} })
	if err != nil {
		t.Fatal(err)
	}
	if err := target.witness(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	seen := strings.Join(target.Witness.Mismatches, "\n")
	for _, way := range []string{"(metric): asked for on, the server says off", "(probe): asked for on, the server says off"} {
		if !strings.Contains(seen, way) {
			t.Errorf("no mismatch %q in %q", way, seen)
		}
	}
	dir := cluster.Dir()
	if err := target.Stop(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir)
}

// TestKindInterrupted: a creation that is broken off leaves nothing.
func TestKindInterrupted(t *testing.T) {
	o := kindServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	timer := time.AfterFunc(10*time.Second, func() { cancel(interrupted) })
	defer timer.Stop()
	target, err := Start(ctx, o)
	if err == nil {
		_ = target.Stop()
		t.Fatal("the cluster was made within 10 s")
	}
	if !errors.Is(err, interrupted) {
		t.Errorf("%v, want that it was interrupted", err)
	}
	nothingLeft(t, "")
}

// nothingLeft looks for the folder and for containers of tests.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if dir != "" {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the cluster's folder is still there: %v", err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "docker", "ps", "--all", "--format", "{{.Names}}", "--filter", "name="+kind.NamePrefix+"test-").
		Output()
	if err != nil || len(out) > 0 {
		t.Errorf("containers are left: %s, %v", out, err)
	}
}
