package shard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/internal/usage"
	"github.com/authzconf/authzconf/loadgen/run"
)

// jobOfBlock is a Job that was created, with what its pods report.
type jobOfBlock struct {
	client kubernetes.Interface
	object *batchv1.Job
	shards []*podOfShard
	// end ends the reading of the logs. followers are the goroutines that read them.
	end       context.CancelFunc
	followers sync.WaitGroup
}

// podOfShard is the pod of an index.
type podOfShard struct {
	name string
	// clock is what the shard reported about its clock when it was ready.
	clock *clockReading
	// said has the messages of its log. It is closed when there will be no more, and why says why.
	said chan message
	why  error
}

func newJobOfBlock(client kubernetes.Interface, object *batchv1.Job, shards int) *jobOfBlock {
	j := &jobOfBlock{client: client, object: object, end: func() {}}
	for range shards {
		j.shards = append(j.shards, &podOfShard{said: make(chan message, 2)})
	}
	return j
}

// podsOf selects the pods of a Job.
func podsOf(object *batchv1.Job) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + object.Name}
}

func shardName(i, count int) string { return fmt.Sprintf("shard %d of %d", i, count) }

// awaitReady returns when every shard has opened its connections. From then on all logs are followed.
func (j *jobOfBlock) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("is not ready after %s", startTimeout))
	defer cancel()
	if err := j.awaitRunning(ctx); err != nil {
		return err
	}
	following, end := context.WithCancel(context.Background()) // for the whole block, and not only until all are ready
	j.end = end
	for i := range j.shards {
		j.followers.Go(func() { j.follow(following, i) })
	}
	for i, s := range j.shards {
		m, err := j.next(ctx, i)
		switch {
		case err != nil:
			return err
		case m.Ready == nil:
			return fmt.Errorf("%s has said something else than that it is ready", shardName(i, len(j.shards)))
		}
		s.clock = m.Ready
	}
	return nil
}

// awaitBlocks returns what each shard has counted, which is nil for a lost one, and why it was lost.
func (j *jobOfBlock) awaitBlocks(ctx context.Context) (blocks []*run.Block, errs []error) {
	for i := range j.shards {
		m, err := j.next(ctx, i)
		var block *run.Block
		if err == nil {
			block, err = readBlock(m.Block)
		}
		blocks, errs = append(blocks, block), append(errs, err)
	}
	return blocks, errs
}

// next returns the next message of a shard.
func (j *jobOfBlock) next(ctx context.Context, i int) (message, error) {
	s := j.shards[i]
	select {
	case m, isThere := <-s.said:
		if !isThere {
			return m, fmt.Errorf("%s %w: %w", shardName(i, len(j.shards)), errLost, s.why)
		}
		return m, nil
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return message{}, context.Cause(ctx)
	}
	_, fate := j.fateOf(s.name)
	return message{}, fmt.Errorf("%s %w; %w", shardName(i, len(j.shards)), context.Cause(ctx), fate)
}

// followAgain is after how long a log that ended too early is read again.
const followAgain = time.Second

// follow passes on the messages of a shard's log until its pod or ctx has ended. It uses one request that was made
// before the block and stays open, because reading the log again and again would be requests to the API server that is
// measured.
func (j *jobOfBlock) follow(ctx context.Context, i int) {
	s := j.shards[i]
	defer close(s.said)
	for count := 0; ; {
		n, err := j.readLog(ctx, s, count)
		count += n
		if ctx.Err() != nil {
			s.why = ctx.Err()
			return
		}
		hasEnded, fate := j.fateOf(s.name)
		if hasEnded {
			s.why = errors.Join(fate, err)
			return
		}
		clusters.Pause(ctx, followAgain) // the stream has broken, and the pod goes on
	}
}

// readLog passes on the messages of a log without the first ones, which were passed on already. It returns how many it
// passed on.
func (j *jobOfBlock) readLog(ctx context.Context, s *podOfShard, skip int) (count int, err error) {
	stream, err := j.client.CoreV1().Pods(j.object.Namespace).GetLogs(s.name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 2*maxLogBytes)
	for number := 0; lines.Scan(); {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue // the program or its runtime may print other lines
		}
		if number++; number <= skip {
			continue
		}
		select {
		case s.said <- m:
			count++
		case <-ctx.Done():
			return count, ctx.Err()
		}
	}
	return count, lines.Err()
}

// close ends the reading of the logs.
func (j *jobOfBlock) close() {
	j.end()
	j.followers.Wait()
}

// awaitRunning waits until every index has a pod that runs, or has ended already.
func (j *jobOfBlock) awaitRunning(ctx context.Context) error {
	running, states := 0, ""
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := j.client.CoreV1().Pods(j.object.Namespace).List(ctx, podsOf(j.object))
		if err != nil {
			return false, err
		}
		states = statesOf(pods.Items)
		running, err = j.note(pods.Items)
		return running == len(j.shards), err
	})
	switch {
	case ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%d of the %d shards run after %s: %s", running, len(j.shards), startTimeout, states)
	}
	return context.Cause(ctx)
}

// note records the names of the pods that run or have ended, by their index, and counts them.
func (j *jobOfBlock) note(pods []corev1.Pod) (started int, err error) {
	for _, p := range pods {
		index, err := strconv.Atoi(p.Labels[batchv1.JobCompletionIndexAnnotation])
		isKnown := err == nil && index >= 0 && index < len(j.shards)
		switch {
		case !isKnown:
			return started, fmt.Errorf("the pod %s has the index %q", p.Name, p.Labels[batchv1.JobCompletionIndexAnnotation])
		case slices.ContainsFunc(p.Status.ContainerStatuses, unpullable):
			return started, &usage.Error{
				Problem: fmt.Sprintf(
					"the image of the shards cannot be pulled: %s; expected an image of authzconf, or of its loadgen/shard/program, that the nodes can pull",
					statesOf([]corev1.Pod{p}),
				),
			}
		case p.Status.Phase != corev1.PodPending:
			j.shards[index].name = p.Name
			started++
		}
	}
	return started, nil
}

func unpullable(c corev1.ContainerStatus) bool {
	return c.State.Waiting != nil &&
		slices.Contains([]string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, c.State.Waiting.Reason)
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

// fateTimeout limits the time to read what became of a pod.
const fateTimeout = 10 * time.Second

// fateOf returns whether a pod has ended, and an error that says what became of it.
func (j *jobOfBlock) fateOf(name string) (hasEnded bool, fate error) {
	ctx, cancel := context.WithTimeout(context.Background(), fateTimeout)
	defer cancel()
	pod, err := j.client.CoreV1().Pods(j.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, fmt.Errorf("its pod %s was deleted", name)
	case err != nil:
		return false, fmt.Errorf("what became of its pod %s cannot be read: %w", name, err)
	case pod.DeletionTimestamp != nil:
		return true, fmt.Errorf("its pod %s is being deleted", name)
	}
	text := string(pod.Status.Phase)
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			text += fmt.Sprintf(" (%s, exit code %d) %s", t.Reason, t.ExitCode, t.Message)
		}
	}
	text = strings.TrimSpace(text) + j.nodeFate(ctx, pod.Spec.NodeName)
	hasEnded = pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	return hasEnded, fmt.Errorf("its pod %s is %s", name, text)
}

func (j *jobOfBlock) nodeFate(ctx context.Context, name string) string {
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
