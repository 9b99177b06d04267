package storm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/kwoktest"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/judge"
	"github.com/authzconf/authzconf/loadgen/profile"
)

// TestKwokOnKind storms a cluster of kind from the agents of 500 nodes that a real kwok keeps Ready, in addition to
// everything that a cluster's controllers ask. The run passes, or says why it cannot be judged.
func TestKwokOnKind(t *testing.T) {
	source, image := os.Getenv("AUTHZCONF_KWOK"), os.Getenv("AUTHZCONF_KIND_NODE_IMAGE")
	if source == "" || image == "" {
		t.Skip("AUTHZCONF_KWOK or AUTHZCONF_KIND_NODE_IMAGE is not set: make kind-load sets both")
	}
	version, err := kind.ImageVersion(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kind.Start(
		t.Context(),
		kind.Options{
			Name:    "kwok",
			Image:   image,
			Version: version,
			Options: local.Options{FeatureGates: map[string]bool{server.GateName: true}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	data, err := clusters.Kubeconfig("kind", cluster.Admin())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := errors.Join(err, os.WriteFile(kubeconfig, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	kwoktest.Start(t, source, kubeconfig)
	o := inExisting(t, kubeconfig, "kwok")
	p, err := profile.Load("one-cluster", nil)
	if err == nil {
		o.Kwok, p.Nodes, p.PodsPerNode, p.Pairs, p.Declared.Pairs = true, 500, 2, 1, 1
		o.Profile, err = p.Adjusted(profile.Adjust{Counts: true}, func(flag string) bool { return flag == "counts" })
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := Execute(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	result := judge.Judge(*out, judge.ThresholdsOf(o.Profile))
	t.Logf("%s: reasons %v, notes %v", result.Outcome, result.Reasons, out.Notes)
	for _, v := range result.Variants {
		t.Logf(
			"%s: %d requests, %d errors, %.3f reviews each, p99 %.1f ms",
			v.Name,
			v.Sent,
			v.Errors,
			v.Reviews.PerRequest.Estimate,
			v.P99.Milliseconds,
		)
	}
	if result.Outcome != judge.Passed {
		t.Errorf("%s", result.Outcome)
	}
}

// TestKwok has a real kwok keep the nodes of a storm. They are Ready, and requests cost the same as without it.
func TestKwok(t *testing.T) {
	source := os.Getenv("AUTHZCONF_KWOK")
	if source == "" {
		t.Skip("AUTHZCONF_KWOK names no folder with kwok's sources: docs/load-setup.md says where to get them")
	}
	plane, client := foreign(t)
	kwoktest.Start(t, source, plane.KubeconfigPath())
	o := inExisting(t, plane.KubeconfigPath(), "kwok")
	o.Kwok, o.Profile.Block = true, 2*time.Second
	ready := 0
	o.Progress = func(at Progress) {
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || at.Block != 1 {
			return
		}
		for _, n := range nodes.Items {
			if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}) {
				ready++
			}
		}
	}
	out, err := Execute(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if ready < o.Profile.Nodes {
		t.Errorf("%d of %d nodes are Ready", ready, o.Profile.Nodes)
	}
	for _, b := range out.Blocks {
		denied := 0.0
		for _, a := range b.Attempts {
			if a.Decision != "allowed" {
				denied += a.Count
			}
		}
		if b.Sent != b.Planned ||
			len(b.Wrong) > 0 ||
			b.Variant == "denied" && denied != 3*float64(b.Sent) {
			t.Errorf("%s: planned %d, sent %d, wrong %v, attempts %+v", b.Variant, b.Planned, b.Sent, b.Wrong, b.Attempts)
		}
	}
	t.Logf("problems %v, notes %v", out.Problems, out.Notes)
	nothingLeft(t, client)
}

// refusedAs expects an error that the user can fix and that contains some words.
func refusedAs(t *testing.T, err error, want ...string) {
	t.Helper()
	if !usage.Is(err) {
		t.Errorf("got %v", err)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}
