package clusterloader2_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/kind"
	"github.com/authzconf/authzconf/clusters/kwoktest"
	"github.com/authzconf/authzconf/clusters/local"
	"github.com/authzconf/authzconf/engine/server"
	"github.com/authzconf/authzconf/loadgen/predict"
	"github.com/authzconf/authzconf/scenarios"
)

const (
	agentImage = "authzconf/clusterloader2-agent:latest"
	// kwokNodes are beside the three of kind: pods on them are said to run, and do nothing.
	kwokNodes  = 20
	daemonSets = 5
	every      = 4 * time.Second
	// settles is after when what agents asked first has been forgotten twice, and counted is how long their requests are
	// counted then: a multiple of 12 s, in which an agent that asks every 4 s has its checks made once.
	settles = 30 * time.Second
	counted = 120 * time.Second
)

// TestOnKind has clusterloader2 make the load on a cluster of kind with three nodes and others that kwok keeps, and holds the
// counts of the API server to what authzconf load predict says.
func TestOnKind(t *testing.T) {
	program, nodeImage, kwok := os.Getenv("AUTHZCONF_CLUSTERLOADER"), os.Getenv("AUTHZCONF_KIND_NODE_IMAGE"), os.Getenv("AUTHZCONF_KWOK")
	if slices.Contains([]string{program, nodeImage, kwok}, "") {
		t.Skip(
			"AUTHZCONF_CLUSTERLOADER, AUTHZCONF_KIND_NODE_IMAGE or AUTHZCONF_KWOK is not set: make kind-clusterloader2 sets the last two",
		)
	}
	cluster := startCluster(t, nodeImage)
	client, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	data, err := clusters.Kubeconfig("kind", cluster.Admin())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := errors.Join(err, os.WriteFile(kubeconfig, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	kwoktest.Start(t, kwok, kubeconfig)
	createNodes(t, client)
	ended := startClusterloader(t, program, kubeconfig)
	awaitAgents(t, client, 3*daemonSets, ended)
	time.Sleep(settles)
	before := readCounts(t, client)
	time.Sleep(counted)
	after := readCounts(t, client)
	compareWithPrediction(t, after.since(before))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func startCluster(t *testing.T, image string) *kind.Cluster {
	t.Helper()
	version, err := kind.ImageVersion(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kind.Start(t.Context(), kind.Options{
		Name: "clusterloader2", Image: image, Version: version, Workers: make([]kind.Worker, 2),
		Options: local.Options{FeatureGates: map[string]bool{server.GateName: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	archive := filepath.Join(t.TempDir(), "agent.tar")
	if out, err := exec.CommandContext(t.Context(), "./image", agentImage, archive).CombinedOutput(); err != nil {
		t.Fatalf("building the agent's image: %v: %s", err, out)
	}
	content, err := os.ReadFile(archive)
	if err == nil {
		err = cluster.LoadImage(t.Context(), content)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// createNodes creates the nodes that kwok keeps.
func createNodes(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	for i := range kwokNodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("kwok-%d", i),
			Annotations: map[string]string{kwoktest.Node: "fake"},
			Labels:      map[string]string{corev1.LabelOSStable: "linux"},
		}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// startClusterloader starts clusterloader2, and returns how it ends.
func startClusterloader(t *testing.T, program, kubeconfig string) <-chan error {
	t.Helper()
	overrides, err := yaml.Marshal(map[string]any{
		"CL2_AGENT_IMAGE": agentImage, "CL2_AGENT_DAEMONSETS": daemonSets, "CL2_AGENT_EVERY": every.String(),
		"CL2_AGENT_DURATION": (settles + counted + time.Minute).String(),
	})
	file := filepath.Join(t.TempDir(), "overrides.yaml")
	if err := errors.Join(err, os.WriteFile(file, overrides, 0o600)); err != nil {
		t.Fatal(err)
	}
	reports := t.TempDir()
	ended := make(chan error, 1)
	go func() {
		out, err := exec.CommandContext(t.Context(), program, "--provider=local", "--kubeconfig="+kubeconfig, "--testconfig=config.yaml",
			"--testoverrides="+file, "--report-dir="+reports).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("clusterloader2: %w: %s", err, out[max(0, len(out)-4000):])
		}
		ended <- err
	}()
	return ended
}

// awaitAgents waits until so many agents run on nodes that run pods.
func awaitAgents(t *testing.T, client kubernetes.Interface, agents int, ended <-chan error) {
	t.Helper()
	running := 0
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, 15*time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("clusterloader2 has ended before its agents ran: %w", err)
		default:
		}
		pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "group=authzconf-agents"})
		if err != nil {
			return false, err
		}
		running = 0
		for _, p := range pods.Items {
			isReal := !strings.HasPrefix(p.Spec.NodeName, "kwok-")
			if isReal && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == agents, nil
	})
	if err != nil {
		t.Fatalf("%d of %d agents run: %v", running, agents, err)
	}
}

// counts are of the API server.
type counts struct {
	requests, checks float64
	// listed is how many lists of pods its service level indicator has, and seconds how long they took together.
	listed, seconds float64
}

func (c counts) since(before counts) counts {
	return counts{c.requests - before.requests, c.checks - before.checks, c.listed - before.listed, c.seconds - before.seconds}
}

func readCounts(t *testing.T, client kubernetes.Interface) (c counts) {
	t.Helper()
	stream, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(stream)
	if err != nil {
		t.Fatal(err)
	}
	mode := map[string]string{"mode": "associated-node"}
	for _, m := range find(families, "apiserver_impersonation_attempts_total", mode) {
		c.requests += m.GetCounter().GetValue()
	}
	for _, m := range find(families, "apiserver_impersonation_authorization_attempts_total", mode) {
		c.checks += m.GetCounter().GetValue()
	}
	for _, m := range find(families, "apiserver_request_sli_duration_seconds", map[string]string{"resource": "pods", "verb": "LIST"}) {
		c.listed += float64(m.GetHistogram().GetSampleCount())
		c.seconds += m.GetHistogram().GetSampleSum()
	}
	return c
}

// find returns the metrics of a family that have some labels.
func find(families map[string]*dto.MetricFamily, name string, labels map[string]string) (list []*dto.Metric) {
	for _, m := range families[name].GetMetric() {
		has := map[string]string{}
		for _, pair := range m.GetLabel() {
			if _, isAsked := labels[pair.GetName()]; isAsked {
				has[pair.GetName()] = pair.GetValue()
			}
		}
		if maps.Equal(has, labels) {
			list = append(list, m)
		}
	}
	return list
}

// compareWithPrediction compares what was counted in the steady state with what is predicted. An agent's last checks before or after the
// counted time may be counted or not, and so may an account's.
func compareWithPrediction(t *testing.T, c counts) {
	t.Helper()
	plan := predict.Defaults()
	plan.Authorizer.Chain, plan.Gate, plan.RBAC = predict.RBACAlone, scenarios.GateOn, predict.ConstrainedRBAC
	w := predict.DefaultWorkload()
	w.Name, w.Nodes, w.DaemonSets, w.Every = "agents", 3, daemonSets, scenarios.Duration(every)
	plan.Workloads = []predict.Workload{w}
	prediction, err := predict.Predict(&plan)
	if err != nil {
		t.Fatal(err)
	}
	agents := 3 * float64(daemonSets)
	requests, checks := w.Rate()*counted.Seconds(), 0.0
	for _, k := range prediction.Situations[0].Kinds {
		if k.Kind != predict.RequestCheck {
			checks += k.Checks.ClosedForm * counted.Seconds()
		}
	}
	t.Logf("%.0f agents every %s, %s: %.0f requests, predicted %.0f; %.0f checks of impersonation (%.3f a request), predicted %.0f (%.3f)",
		agents, every, counted, c.requests, requests, c.checks, c.checks/c.requests, checks, checks/requests)
	t.Logf("the API server's own indicator has %.0f lists of pods, %.1f ms each", c.listed, 1000*c.seconds/c.listed)
	if math.Abs(c.requests-requests) > agents {
		t.Errorf("%.0f requests, want %.0f ± %.0f", c.requests, requests, agents)
	}
	if math.Abs(c.checks-checks) > agents+daemonSets {
		t.Errorf("%.0f checks, want %.0f ± %.0f", c.checks, checks, agents+daemonSets)
	}
	if c.listed < c.requests {
		t.Errorf("the indicator has %.0f lists of pods, and agents made %.0f", c.listed, c.requests)
	}
}
