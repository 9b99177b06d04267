package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/wait"
	"sigs.k8s.io/e2e-framework/klient/wait/conditions"
)

const (
	// tokenTTL is how long the API server does not look again at a token that was
	// valid, and slack what an answer and a poll take besides.
	tokenTTL = 10 * time.Second
	slack    = 2 * time.Second
)

// Outcome is what came out of a run.
type Outcome struct {
	Checks []Check `json:"checks"`
	// PodWindow is how long a token was good after its pod was deleted.
	PodWindow time.Duration `json:"podWindow"`
	// NodeWindow is how long a token was seen to be good after the Node was deleted
	// that its pod was on. It does not end by itself.
	NodeWindow time.Duration `json:"nodeWindow"`
}

// Failed are the checks that did not pass.
func (o Outcome) Failed() (failed []Check) {
	for _, c := range o.Checks {
		if !c.Passed() {
			failed = append(failed, c)
		}
	}
	return failed
}

// Run deploys the agents, looks at what they are allowed, and deletes a pod and a node under them. An error says
// that this could not be done; what the cluster did wrong is in the outcome.
func Run(ctx context.Context, c Cluster, suffix string) (out Outcome, err error) {
	a, err := Deploy(ctx, c, suffix)
	if err != nil {
		return out, fmt.Errorf("deploying the agents: %w", err)
	}
	defer func() { err = errors.Join(err, a.Remove(context.WithoutCancel(ctx))) }()
	for _, step := range []struct {
		what string
		do   func(context.Context, *Outcome) error
	}{{"at work", a.atWork}, {"deleting a pod", a.deletePod}, {"deleting a node", a.deleteNode}} {
		if err := step.do(ctx, &out); err != nil {
			return out, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return out, nil
}

// atWork judges one round and more of every agent.
func (a *Agents) atWork(ctx context.Context, out *Outcome) error {
	var all []Attempt
	for _, node := range a.Nodes {
		lines, err := a.rounds(ctx, node, time.Time{})
		if err != nil {
			return err
		}
		out.Checks = append(out.Checks, judgeLines(node, lines)...)
		all = append(all, lines...)
	}
	events, err := a.cluster.EventsBy(a.User)
	if err != nil {
		return err
	}
	out.Checks = append(out.Checks, judgeEvents(all, events)...)
	return nil
}

// stolen is the token of the agent on a node in other hands, after it was used.
func (a *Agents) stolen(ctx context.Context, node string) (*holder, *corev1.Pod, error) {
	pod, err := a.pod(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	token, err := Token(ctx, a.cluster.Admin(), a.Name, pod.Name)
	if err != nil {
		return nil, nil, err
	}
	h, err := a.holder(token, node)
	if err != nil {
		return nil, nil, err
	}
	if code, err := h.list(ctx); err != nil || code != 200 {
		return nil, nil, fmt.Errorf("the token of pod %s gives %d (expected 200): %w", pod.Name, code, err)
	}
	return h, pod, nil
}

// deletePod deletes the pod of an agent at once: its token ends when the API
// server has forgotten it, and the agent goes on in a new pod.
func (a *Agents) deletePod(ctx context.Context, out *Outcome) error {
	node := a.Nodes[0]
	h, pod, err := a.stolen(ctx, node)
	if err != nil {
		return err
	}
	now := int64(0)
	deleted := time.Now()
	if err := a.typed.CoreV1().Pods(a.Name).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	if out.PodWindow, err = h.until(ctx, 401, deleted); err != nil {
		return err
	}
	ended := "within the cache's time"
	got := ended
	if out.PodWindow > tokenTTL+slack {
		got = "after " + out.PodWindow.String()
	}
	out.Checks = append(out.Checks, Check{"the token of a deleted pod ends", ended, got})
	return a.goesOn(ctx, node, deleted, out)
}

// goesOn judges what the agent of a node does in the pod that it has now.
func (a *Agents) goesOn(ctx context.Context, node string, after time.Time, out *Outcome) error {
	if err := a.ready(ctx); err != nil {
		return err
	}
	lines, err := a.rounds(ctx, node, after)
	if err != nil {
		return err
	}
	out.Checks = append(out.Checks, judgeLines(node, lines)...)
	return nil
}

// deleteNode deletes the Node object of an agent's node, and makes it again: the kubelet, which runs all the
// while, takes it as its own. A token that is bound to a pod names the node only for others to read, so it stays
// valid, and its holder may be a node that is not there.
func (a *Agents) deleteNode(ctx context.Context, out *Outcome) (err error) {
	name := a.Nodes[0]
	h, _, err := a.stolen(ctx, name)
	if err != nil {
		return err
	}
	node, err := a.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	deleted := time.Now()
	if err := a.typed.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.restore(context.WithoutCancel(ctx), node)) }()
	// Longer than everything that the API server remembers: token and impersonation.
	for time.Since(deleted) < tokenTTL+slack {
		code, err := h.list(ctx)
		if err != nil {
			return err
		}
		if code != 200 {
			out.Checks = append(out.Checks, Check{"the token of a pod outlives the node", "200", fmt.Sprintf("%d after %s", code, time.Since(deleted))})
			return nil
		}
		out.NodeWindow = time.Since(deleted)
		if err := sleep(ctx, poll); err != nil {
			return err
		}
	}
	out.Checks = append(out.Checks, Check{"the token of a pod outlives the node", "200", "200"})
	return nil
}

// restore makes a deleted Node object again, as it was, and waits until its kubelet and the agent are there.
func (a *Agents) restore(ctx context.Context, node *corev1.Node) error {
	again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, Annotations: node.Annotations}, Spec: node.Spec}
	if _, err := a.typed.CoreV1().Nodes().Create(ctx, again, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making node %s again: %w", node.Name, err)
	}
	live := conditions.New(a.client.Resources()).ResourceMatch(again, func(o k8s.Object) bool {
		return slices.ContainsFunc(o.(*corev1.Node).Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	})
	if err := wait.For(live, a.within(ctx)...); err != nil {
		return fmt.Errorf("node %s is not ready again: %w", node.Name, err)
	}
	return a.ready(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
