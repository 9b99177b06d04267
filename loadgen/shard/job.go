package shard

import (
	"context"
	_ "embed" // for the manifest
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/authzconf/authzconf/clusters/image"
	"github.com/authzconf/authzconf/internal/usage"
)

const (
	podProgram = "github.com/authzconf/authzconf/loadgen/shard/program"
	// PathVariable names a shard that is built already; see image.Program.
	PathVariable  = "AUTHZCONF_SHARD"
	podPath       = "/shard"
	startTimeout  = 3 * time.Minute
	deleteTimeout = time.Minute
)

// Namespace is where the Job is.
const Namespace = "authzconf-load"

//go:embed job.yaml
var manifest string

// Pods are those of an Indexed Job that was created: each is a shard, and is given its job and its orders through the
// cluster's API, attached to its stdin and stdout. It takes nothing but a client configuration that may create Jobs
// and attach to pods, and the image on the nodes.
type Pods struct {
	config *rest.Config
	client kubernetes.Interface
	object *batchv1.Job
	pods   []string // the pod of each index
}

// render fills a run's numbers into the manifest. life is when the cluster ends the pods, if nobody else has; image, if
// given, is one that the nodes can pull.
func render(shards int, life time.Duration, image string) (*corev1.Namespace, *batchv1.Job, error) {
	var space corev1.Namespace
	var job batchv1.Job
	first, second, _ := strings.Cut(manifest, "\n---\n")
	decoder := scheme.Codecs.UniversalDeserializer()
	if _, _, err := decoder.Decode([]byte(first), nil, &space); err != nil {
		return nil, nil, fmt.Errorf("job.yaml: %w", err)
	}
	if _, _, err := decoder.Decode([]byte(second), nil, &job); err != nil {
		return nil, nil, fmt.Errorf("job.yaml: %w", err)
	}
	n, seconds := int32(shards), int64(life/time.Second)
	job.Spec.Completions, job.Spec.Parallelism, job.Spec.ActiveDeadlineSeconds = &n, &n, &seconds
	if c := &job.Spec.Template.Spec.Containers[0]; image != "" {
		c.Image, c.ImagePullPolicy = image, corev1.PullIfNotPresent
	}
	return &space, &job, nil
}

// LoadImage builds the image of the shard and puts it on the nodes.
func LoadImage(ctx context.Context, nodes image.Loader) error {
	_, job, err := render(1, time.Hour, "")
	if err != nil {
		return err
	}
	shard, err := image.Of(ctx, job.Spec.Template.Spec, PathVariable, podProgram, podPath)
	if err != nil {
		return err
	}
	return shard.Load(ctx, nodes)
}

// CreatePods creates the Job, and returns when each index has a running pod. On an error nothing of it is left. image,
// if given, is pulled; LoadImage puts the one that is taken otherwise on the nodes.
func CreatePods(ctx context.Context, config *rest.Config, shards int, life time.Duration, image string) (_ *Pods, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	space, object, err := render(shards, life, image)
	if err != nil {
		return nil, err
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the namespace of the shards: %w", err)
	}
	j := &Pods{config: config, client: client, object: object, pods: make([]string, shards)}
	object.Name, object.GenerateName = "", object.Name+"-" // beside one of another run
	if j.object, err = client.BatchV1().Jobs(object.Namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating the Job of the shards: %w", err)
	}
	if err := j.await(ctx); err != nil {
		_ = j.Close()
		return nil, err
	}
	return j, nil
}

// await waits until every pod of the Job runs.
func (j *Pods) await(ctx context.Context) error {
	running, states := 0, ""
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		pods, err := j.client.CoreV1().Pods(j.object.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + j.object.Name})
		if err != nil {
			return false, err
		}
		states = statesOf(pods.Items)
		running, err = j.note(pods.Items)
		return running == len(j.pods), err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wait.Interrupted(err):
		return fmt.Errorf("%d of the %d shards run after %s: %s", running, len(j.pods), startTimeout, states)
	}
	return err
}

// note keeps the names of the pods that run, by their index, and counts them.
func (j *Pods) note(pods []corev1.Pod) (running int, err error) {
	for _, p := range pods {
		index, err := strconv.Atoi(p.Labels[batchv1.JobCompletionIndexAnnotation])
		if err != nil || index < 0 || index >= len(j.pods) {
			return running, fmt.Errorf("the pod %s has the index %q", p.Name, p.Labels[batchv1.JobCompletionIndexAnnotation])
		}
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			j.pods[index] = p.Name
			running++
		}
		if slices.ContainsFunc(p.Status.ContainerStatuses, unpullable) {
			return running, &usage.Error{Problem: fmt.Sprintf("the image of the shards cannot be pulled: %s; expected an image of authzconf, or of its loadgen/shard/program, that the nodes can pull", statesOf([]corev1.Pod{p}))}
		}
	}
	return running, nil
}

func unpullable(c corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && slices.Contains([]string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, c.State.Waiting.Reason)
}

func statesOf(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "there is no pod"
	}
	var all []string
	for _, p := range pods {
		text := p.Name + " is " + string(p.Status.Phase)
		for _, c := range p.Status.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" {
				text += ", " + c.Message
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil {
				text += ", " + w.Reason + " " + w.Message
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// Close implements Launcher: it deletes the Job with its pods.
func (j *Pods) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	err := j.client.BatchV1().Jobs(j.object.Namespace).Delete(ctx, j.object.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the Job of the shards: %w", err)
	}
	return nil
}

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
		text += j.nodeFate(ctx, pod.Spec.NodeName)
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

func (j *Pods) nodeFate(ctx context.Context, name string) string {
	node, err := j.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	ready := err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case apierrors.IsNotFound(err):
		return ", and its node " + name + " is gone"
	case err == nil && !ready:
		return ", and its node " + name + " is not ready"
	}
	return ""
}

type closing struct {
	io.WriteCloser
	asked atomic.Bool
}

func (c *closing) Close() error {
	c.asked.Store(true)
	return c.WriteCloser.Close()
}

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
