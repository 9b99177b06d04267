package shard

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/authzconf/authzconf/internal/usage"
)

// The manifest is filled with the run's numbers, and nothing else is changed.
func TestRender(t *testing.T) {
	space, job, err := render(7, 90*time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	s := job.Spec
	if *s.Completions != 7 || *s.Parallelism != 7 || *s.ActiveDeadlineSeconds != 90 || *s.CompletionMode != batchv1.IndexedCompletion {
		t.Errorf("%d completions, %d at once, %d s, %s", *s.Completions, *s.Parallelism, *s.ActiveDeadlineSeconds, *s.CompletionMode)
	}
	pod := s.Template.Spec
	c := pod.Containers[0]
	if job.Namespace != space.Name || space.Name != Namespace || !c.Stdin || !c.StdinOnce || c.ImagePullPolicy != corev1.PullNever || pod.RestartPolicy != corev1.RestartPolicyNever || *pod.AutomountServiceAccountToken {
		t.Errorf("rendered %+v", job)
	}
	if _, job, err := render(1, time.Hour, "example.com/authzconf:1"); err != nil || job.Spec.Template.Spec.Containers[0].Image != "example.com/authzconf:1" || job.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("with an image: %v, %+v", err, job)
	}
}

func pod(name, index string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", Labels: map[string]string{
			batchv1.JobNameLabel: "j", batchv1.JobCompletionIndexAnnotation: index,
		}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// jobOf is a Job with its pods, on a node that is ready and one that is not.
func jobOf(pods ...*corev1.Pod) *Pods {
	client := fake.NewClientset()
	for name, status := range map[string]corev1.ConditionStatus{"well": corev1.ConditionTrue, "ill": corev1.ConditionUnknown} {
		_ = client.Tracker().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		}})
	}
	for _, p := range pods {
		_ = client.Tracker().Add(p)
	}
	return &Pods{client: client, object: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"}}, pods: make([]string, 2)}
}

func TestAwait(t *testing.T) {
	leaving := pod("leaving", "1", corev1.PodRunning)
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"x"}
	j := jobOf(pod("a", "0", corev1.PodRunning), pod("b", "1", corev1.PodRunning), leaving, pod("failed", "0", corev1.PodFailed))
	if err := j.await(t.Context()); err != nil || j.pods[0] != "a" || j.pods[1] != "b" {
		t.Errorf("%v, pods %v", err, j.pods)
	}
	if err := jobOf(pod("a", "2", corev1.PodRunning)).await(t.Context()); err == nil || !strings.Contains(err.Error(), `the pod a has the index "2"`) {
		t.Errorf("an index too many: %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := jobOf(pod("a", "0", corev1.PodRunning), pod("b", "1", corev1.PodPending)).await(ctx); err == nil || err.Error() != "enough" {
		t.Errorf("a pod that does not run: %v", err)
	}
}

func TestUnpullable(t *testing.T) {
	p := pod("b", "1", corev1.PodPending)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such host"}}}}
	err := jobOf(pod("a", "0", corev1.PodRunning), p).await(t.Context())
	if !usage.Is(err) || !strings.Contains(err.Error(), "b is Pending, ImagePullBackOff no such host") {
		t.Errorf("got %v", err)
	}
}

func TestStates(t *testing.T) {
	p := pod("b", "1", corev1.PodPending)
	p.Status.Conditions = []corev1.PodCondition{{Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not there"}}}}
	if got, want := statesOf([]corev1.Pod{*p}), "b is Pending, 0/2 nodes are available, ErrImageNeverPull not there"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := statesOf(nil); got != "there is no pod" {
		t.Errorf("got %q", got)
	}
}

// What became of a pod, and that another is in its place.
func TestFate(t *testing.T) {
	failed := pod("failed", "0", corev1.PodFailed)
	failed.Spec.NodeName = "well"
	cutOff, orphan := pod("cut-off", "0", corev1.PodRunning), pod("orphan", "0", corev1.PodRunning)
	cutOff.Spec.NodeName, orphan.Spec.NodeName = "ill", "gone"
	failed.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}}
	leaving := pod("leaving", "0", corev1.PodRunning)
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"x"}
	for _, c := range []struct {
		name, want string
		pods       []*corev1.Pod
	}{
		{"gone", "its pod gone was deleted", nil},
		{"gone", "its pod gone was deleted, and the Job has put other in its place, which has counted nothing", []*corev1.Pod{pod("other", "0", corev1.PodRunning), pod("neighbour", "1", corev1.PodRunning)}},
		{"failed", "its pod failed is Failed (OOMKilled, exit code 137)", []*corev1.Pod{failed}},
		{"leaving", "its pod leaving is being deleted", []*corev1.Pod{leaving}},
		{"cut-off", "its pod cut-off is Running, and its node ill is not ready", []*corev1.Pod{cutOff}},
		{"orphan", "its pod orphan is Running, and its node gone is gone", []*corev1.Pod{orphan}},
	} {
		if got := jobOf(c.pods...).fate(0, c.name).Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestTailAndClosing(t *testing.T) {
	said := &tail{}
	_, _ = io.WriteString(said, strings.Repeat("x", 3*tailLength)+"the end\n")
	if got := said.String(); len(got) >= tailLength+1 || !strings.HasSuffix(got, "the end") {
		t.Errorf("kept %d bytes", len(got))
	}
	r, w := io.Pipe()
	c := &closing{WriteCloser: w}
	if c.asked.Load() {
		t.Error("closed before it was")
	}
	_ = c.Close()
	if _, err := r.Read(make([]byte, 1)); !c.asked.Load() || !errors.Is(err, io.EOF) {
		t.Errorf("asked %t, %v", c.asked.Load(), err)
	}
}
