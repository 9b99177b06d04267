package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Launch implements Launcher: it attaches to the pod of an index. There is one stream to one process, so
// that a pod that takes the place of another is never taken for it.
func (j *Pods) Launch(_ context.Context, i, _ int) (*Link, error) {
	pod := j.pods[i]
	request := j.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(j.object.Namespace).Name(pod).SubResource("attach").
		VersionedParams(&corev1.PodAttachOptions{Container: "shard", Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(j.config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	in, orders := io.Pipe()
	replies, out := io.Pipe()
	said := &tail{}
	// Not the run's context: it is asked to end through its input.
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: said})
		_ = orders.Close() // who still writes is not kept waiting
		_ = out.Close()
		ended <- err
	}()
	closed := &closing{WriteCloser: orders}
	return &Link{
		In: closed, Out: replies, Kill: cancel,
		Wait: func() error {
			err := <-ended
			cancel()
			if closed.asked.Load() && err == nil {
				return nil
			}
			why := j.fate(i, pod)
			if text := said.String(); text != "" {
				why = fmt.Errorf("%w: %s", why, text)
			}
			return errors.Join(why, err)
		},
	}, nil
}

// fate says what became of a pod whose stream has ended.
func (j *Pods) fate(i int, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pods := j.client.CoreV1().Pods(j.object.Namespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	var text string
	switch {
	case apierrors.IsNotFound(err):
		text = "was deleted"
	case err != nil:
		return fmt.Errorf("what became of its pod %s cannot be read: %w", name, err)
	case pod.DeletionTimestamp != nil:
		text = "is being deleted"
	default:
		text = "is " + string(pod.Status.Phase)
		for _, c := range pod.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil {
				text += fmt.Sprintf(" (%s, exit code %d)", t.Reason, t.ExitCode)
			}
		}
	}
	selector := batchv1.JobNameLabel + "=" + j.object.Name + "," + batchv1.JobCompletionIndexAnnotation + "=" + strconv.Itoa(i)
	if list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector}); err == nil {
		for _, other := range list.Items {
			if other.Name != name {
				text += ", and the Job has put " + other.Name + " in its place, which has counted nothing"
			}
		}
	}
	return fmt.Errorf("its pod %s %s", name, text)
}

// closing remembers that it was closed.
type closing struct {
	io.WriteCloser
	asked atomic.Bool
}

func (c *closing) Close() error {
	c.asked.Store(true)
	return c.WriteCloser.Close()
}

// tail keeps the end of what a shard says on stderr.
type tail struct {
	mu   sync.Mutex
	text string
}

const tailLength = 500

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(p)
	t.text = t.text[max(0, len(t.text)-tailLength):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.text)
}
