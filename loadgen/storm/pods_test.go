package storm

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/profile"
	"github.com/authzconf/authzconf/loadgen/run"
)

// inPods makes shards pods, on a cluster of the node image that AUTHZCONF_KIND_NODE_IMAGE names.
func inPods(t *testing.T) Options {
	t.Helper()
	image := os.Getenv("AUTHZCONF_KIND_NODE_IMAGE")
	if image == "" {
		t.Skip("AUTHZCONF_KIND_NODE_IMAGE is not set: make kind-load builds an image and runs this")
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
		Release: release, Binaries: &local.Binaries{}, Seed: 1, Shards: 3,
		Provider: server.Kind, NodeImage: image, Engine: Pods, Say: func(s string) { t.Log(s) },
	}
}

// TestPods has three pods that ask what one process asks, and whose counts add up. Then one of them is deleted before
// its block begins.
func TestPods(t *testing.T) {
	o := inPods(t)
	p := burst(
		profile.Comparison{
			Name: "aa",
			A:    side("associated-node-cold", profile.GateOnServer),
			B:    side("associated-node-cold", profile.GateOnServer),
		},
	)
	p.Pairs, p.Block = 2, 4*time.Second
	o.Profile = p
	var r *runner
	deleted := false
	o.Progress = func(at Progress) {
		if at.Block == 4 && !deleted {
			deleted = true
			deleteShard(t, r)
		}
	}
	r = newRunner(o)
	out, err := r.execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Blocks) != 4 || !deleted {
		t.Fatalf("%d blocks, problems %v", len(out.Blocks), out.Problems)
	}
	for _, b := range out.Blocks[:3] {
		differences, why := b.ComparePrediction()
		isAsPredicted := why == "" && len(differences) == 0
		if b.Planned != 20 || b.Sent != 20 || len(b.Wrong) > 0 || b.Latency.Count() != 20 || !isAsPredicted || len(b.Unreconciled) > 0 {
			t.Errorf(
				"planned %d, sent %d, answers %v, reviews %+v, %v %v",
				b.Planned,
				b.Sent,
				b.Answers,
				b.Reviews,
				append(differences, why),
				b.Unreconciled,
			)
		}
	}
	if len(out.Clocks) != 3 {
		t.Errorf("clocks %+v", out.Clocks)
	}
	t.Logf("clocks %+v", out.Clocks)
	lost := slices.ContainsFunc(out.Problems, func(p run.Problem) bool {
		t.Log(p.Text)
		return p.Block == 3 && strings.Contains(p.Text, "shard 1 of 3") &&
			(strings.Contains(p.Text, "its pod shards-") || strings.Contains(p.Text, "told to end"))
	})
	// Of agents 0 to 19, the shard had the numbers 1, 4, … 19.
	if b := out.Blocks[3]; !lost || b.Planned != 13 {
		t.Errorf("a pod was deleted: planned %d, problems %v", b.Planned, out.Problems)
	}
}

func deleteShard(t *testing.T, r *runner) {
	admin, _ := r.servers[profile.GateOnServer].credentials()
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Error(err)
		return
	}
	err = client.CoreV1().Pods("authzconf-load").DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-completion-index=1"})
	if err != nil {
		t.Error(err)
	}
}
