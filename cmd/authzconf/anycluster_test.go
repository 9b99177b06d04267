package main

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/conformance"
	"github.com/authzconf/authzconf/fixtures"
	"github.com/authzconf/authzconf/internal/seq"
	"github.com/authzconf/authzconf/reports"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// passOnAnyCluster runs every scenario that any cluster can run on a cluster as if it were somebody else's.
func passOnAnyCluster(t *testing.T, kubeconfig string) {
	t.Helper()
	set, err := scenarios.Load(scenarios.FS, fixtures.FS)
	if err != nil {
		t.Fatal(err)
	}
	wanted := seq.Count(set.All(), func(s *scenarios.Scenario) bool { return s.OnAnyCluster() == "" })
	folder := filepath.Join(t.TempDir(), "report")
	code, out := authzconf(
		"run",
		"--provider",
		"existing",
		"--kubeconfig",
		kubeconfig,
		"--label-filter",
		"any-cluster",
		"--report-dir",
		folder,
	)
	if code != exitPassed {
		t.Fatalf("code %d: %s", code, out)
	}
	code, verified := authzconf("verify", folder)
	if code != exitPassed {
		t.Fatalf("verify: code %d: %s", code, verified)
	}
	saved, err := conformance.ReadSaved(folder)
	if err != nil {
		t.Fatal(err)
	}
	passed := seq.Count(saved.Report.Groups[0].Cases, func(r reports.Result) bool { return r.Verdict == verdicts.Passed })
	if wanted == 0 || passed != wanted {
		t.Errorf("%d passed of %d scenarios", passed, wanted)
	}
	t.Logf("%d scenarios passed\n%s%s", passed, out, verified)
}

// TestAnyCluster uses a control plane of this machine as an existing cluster.
func TestAnyCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	plane, err := local.Start(t.Context(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() })
	passOnAnyCluster(t, plane.KubeconfigPath())
	left(t, plane)
}

// TestKindAnyCluster uses a cluster of kind, as its administrator and as users who lack one permission each.
func TestKindAnyCluster(t *testing.T) {
	image := os.Getenv("AUTHZCONF_KIND_NODE_IMAGE")
	if image == "" {
		t.Skip("AUTHZCONF_KIND_NODE_IMAGE is not set: make kind-any-cluster builds an image and runs this")
	}
	version, err := kind.ImageVersion(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kind.Start(
		t.Context(),
		kind.Options{Name: "any-cluster", Image: image, Version: version, Workers: make([]kind.Worker, 1)},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	data, err := clusters.Kubeconfig("kind", cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, data, 0o600); err != nil {
		t.Fatal(err)
	}
	passOnAnyCluster(t, kubeconfig)
	client, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	allLacking(t, kubeconfig, client, auditLog(t))
}
