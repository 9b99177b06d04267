package shard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/authzconf/authzconf/internal/usage"
)

// TestRender checks that the run's numbers are set in the manifest, and that nothing else is changed.
func TestRender(t *testing.T) {
	space, job, err := render(7, 90*time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	s := job.Spec
	if *s.Completions != 7 || *s.Parallelism != 7 || *s.ActiveDeadlineSeconds != 90 || *s.CompletionMode != batchv1.IndexedCompletion ||
		*s.BackoffLimitPerIndex != 0 {
		t.Errorf("%d completions, %d at once, %d s, %s", *s.Completions, *s.Parallelism, *s.ActiveDeadlineSeconds, *s.CompletionMode)
	}
	pod := s.Template.Spec
	c := pod.Containers[0]
	if job.Namespace != space.Name || space.Name != Namespace || c.ImagePullPolicy != corev1.PullNever ||
		pod.RestartPolicy != corev1.RestartPolicyNever ||
		*pod.AutomountServiceAccountToken {
		t.Errorf("rendered %+v", job)
	}
	_, job, err = render(1, time.Hour, "example.com/authzconf:1")
	if err != nil || job.Spec.Template.Spec.Containers[0].Image != "example.com/authzconf:1" ||
		job.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
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

// jobOf returns a Job of two shards with its pods, on a node that is ready and one that is not.
func jobOf(pods ...*corev1.Pod) *jobOfBlock {
	client := fake.NewClientset()
	for name, status := range map[string]corev1.ConditionStatus{"well": corev1.ConditionTrue, "ill": corev1.ConditionUnknown} {
		_ = client.Tracker().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		}})
	}
	for _, p := range pods {
		_ = client.Tracker().Add(p)
	}
	return newJobOfBlock(client, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"}}, 2)
}

func TestAwaitRunning(t *testing.T) {
	j := jobOf(pod("a", "0", corev1.PodRunning), pod("b", "1", corev1.PodFailed))
	if err := j.awaitRunning(t.Context()); err != nil || j.shards[0].name != "a" || j.shards[1].name != "b" {
		t.Errorf("%v, pods %v", err, j.shards)
	}
	if err := jobOf(pod("a", "2", corev1.PodRunning)).awaitRunning(t.Context()); err == nil || !strings.Contains(err.Error(), `the pod a has the index "2"`) {
		t.Errorf("an index too many: %v", err)
	}
	waits := jobOf(pod("a", "0", corev1.PodRunning), pod("b", "1", corev1.PodPending))
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := waits.awaitRunning(short)
	if err == nil || !strings.Contains(err.Error(), "1 of the 2 shards run after") ||
		!strings.Contains(err.Error(), "b is Pending") {
		t.Errorf("a pod that does not run: %v", err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("enough"))
	if err := waits.awaitRunning(ended); err == nil || err.Error() != "enough" {
		t.Errorf("ended: %v", err)
	}
}

func TestUnpullable(t *testing.T) {
	p := pod("b", "1", corev1.PodPending)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such host"}}},
	}
	err := jobOf(pod("a", "0", corev1.PodRunning), p).awaitRunning(t.Context())
	if !usage.Is(err) || !strings.Contains(err.Error(), "b is Pending, ImagePullBackOff no such host") {
		t.Errorf("got %v", err)
	}
}

func TestStates(t *testing.T) {
	p := pod("b", "1", corev1.PodPending)
	p.Status.Conditions = []corev1.PodCondition{{Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not there"}}},
	}
	if got, want := statesOf([]corev1.Pod{*p}), "b is Pending, 0/2 nodes are available, ErrImageNeverPull not there"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := statesOf(nil); got != "there is no pod" {
		t.Errorf("got %q", got)
	}
}

// TestFate checks what is reported of a pod, and whether it has ended.
func TestFate(t *testing.T) {
	failed := pod("failed", "0", corev1.PodFailed)
	failed.Spec.NodeName = "well"
	cutOff, orphan := pod("cut-off", "0", corev1.PodRunning), pod("orphan", "0", corev1.PodRunning)
	cutOff.Spec.NodeName, orphan.Spec.NodeName = "ill", "gone"
	failed.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "error: no such server\n"}}}}
	leaving := pod("leaving", "0", corev1.PodRunning)
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"x"}
	for _, c := range []struct {
		name, want string
		pods       []*corev1.Pod
		ended      bool
	}{
		{"gone", "its pod gone was deleted", nil, true},
		{"failed", "its pod failed is Failed (Error, exit code 1) error: no such server", []*corev1.Pod{failed}, true},
		{"leaving", "its pod leaving is being deleted", []*corev1.Pod{leaving}, true},
		{"cut-off", "its pod cut-off is Running, and its node ill is not ready", []*corev1.Pod{cutOff}, false},
		{"orphan", "its pod orphan is Running, and its node gone is gone", []*corev1.Pod{orphan}, false},
	} {
		if ended, got := jobOf(c.pods...).fateOf(c.name); got.Error() != c.want || ended != c.ended {
			t.Errorf("got  %s, %t\nwant %s, %t", got, ended, c.want, c.ended)
		}
	}
}

// TestNext checks that a silent shard is lost, and what is known of its pod is reported. If the user ends the run, only
// that is reported.
func TestNext(t *testing.T) {
	j := jobOf(pod("a", "0", corev1.PodRunning), pod("b", "1", corev1.PodRunning))
	if err := j.awaitRunning(t.Context()); err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errLost)
	defer cancel()
	_, err := j.next(late, 1)
	if !errors.Is(err, errLost) || !strings.Contains(err.Error(), "shard 1 of 2") ||
		!strings.Contains(err.Error(), "its pod b is Running") {
		t.Errorf("silent: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := j.next(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	j.shards[0].why = errors.New("its pod a was deleted")
	close(j.shards[0].said)
	if _, err := j.next(t.Context(), 0); !errors.Is(err, errLost) || !strings.Contains(err.Error(), "its pod a was deleted") {
		t.Errorf("gone: %v", err)
	}
}
