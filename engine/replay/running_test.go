package replay

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/authzconf/authzconf/scenarios"
)

// node is one that a kubelet speaks for, if it has a version.
func node(name, kubelet string, ready corev1.ConditionStatus, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		n.Labels[l] = ""
	}
	n.Status.NodeInfo.KubeletVersion = kubelet
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func TestRealNodes(t *testing.T) {
	p := &provisioner{client: fake.NewClientset(
		node("a-control-plane", "v1.37.1", corev1.ConditionTrue, "node-role.kubernetes.io/control-plane"),
		node("b-worker", "v1.37.1", corev1.ConditionTrue),
		node("made-by-a-scenario", "", corev1.ConditionUnknown),
		node("a-worker-that-is-down", "v1.37.1", corev1.ConditionFalse),
	)}
	two := &scenarios.Scenario{Nodes: []string{"node-a", "node-b"}}
	got, err := p.realNodes(t.Context(), two)
	if want := []string{"b-worker", "a-control-plane"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	three := &scenarios.Scenario{Nodes: []string{"node-a", "node-b", "node-c"}}
	if _, err := p.realNodes(t.Context(), three); err == nil || !strings.Contains(err.Error(), "2 nodes that are ready") {
		t.Errorf("got %v", err)
	}
	if got, err := p.realNodes(t.Context(), &scenarios.Scenario{}); err != nil || got != nil {
		t.Errorf("a scenario without nodes got %q, %v", got, err)
	}
}

func TestPodState(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not there"}}},
	}}}
	if got := podState(pod); got != " (Pending, ErrImageNeverPull: not there)" {
		t.Errorf("got %q", got)
	}
	if got := podState(nil); got != "" {
		t.Errorf("of no pod: %q", got)
	}
}
