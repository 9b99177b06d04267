package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"
)

// Workloads are pods that work while API servers and kubelets are replaced under them: the node agents, and a deputy.
type Workloads struct {
	agents *Agents
	deputy string // the name of the deputy's pod, which is that of its account and of its users' prefix, too
}

const (
	deputyManifest = "nodes/deputy.yaml"
	deputyName     = "node-deputy"
)

// Account returns the user name of the account of agents or deputy with a suffix.
func Account(suffix string, deputy bool) string {
	if deputy {
		return "system:serviceaccount:" + agentName + suffix + ":" + deputyName + "-" + suffix
	}
	return accountOf(suffix)
}

// The kinds of users for whom a deputy works, by what it is granted for them.
const (
	NewUser = "new"    // constrained impersonation
	OldUser = "old"    // legacy impersonation
	NoUser  = "nobody" // nothing
)

// UserKinds returns the kinds of users.
func UserKinds() []string { return []string{NewUser, OldUser, NoUser} }

// DeployWorkloads runs the agents and the deputy, and returns when they work. Their image is there (LoadAgent).
func DeployWorkloads(ctx context.Context, c Cluster, suffix string) (*Workloads, error) {
	agents, err := Deploy(ctx, c, suffix)
	if err != nil {
		return nil, err
	}
	w := &Workloads{agents: agents, deputy: deputyName + "-" + suffix}
	objects, err := readManifest(deputyManifest, strings.NewReplacer(deputyName, w.deputy, ": "+manifestName+"\n", ": "+agents.Name+"\n"))
	for _, o := range objects {
		if pod, isPod := o.(*corev1.Pod); isPod {
			pod.Spec.NodeName = agents.Nodes[0]
		}
		err = errors.Join(err, agents.client.Resources().Create(ctx, o))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating the deputy: %w", err), w.Remove(context.WithoutCancel(ctx)))
	}
	agents.objects = append(agents.objects, clusterWide(objects)...)
	return w, nil
}

// clusterWide returns the objects that do not go with their namespace.
func clusterWide(objects []k8s.Object) (all []k8s.Object) {
	for _, o := range objects {
		if o.GetNamespace() == "" {
			all = append(all, o)
		}
	}
	return all
}

// Remove deletes what DeployWorkloads made.
func (w *Workloads) Remove(ctx context.Context) error { return w.agents.Remove(ctx) }

// WorkRecord is what was seen of the workloads in a time.
type WorkRecord struct {
	// From and To bound the time, Ready is when the API server and the kubelets were those of its end. A line and an event
	// are in it that came after From.
	From  time.Time `json:"from"`
	Ready time.Time `json:"ready"`
	To    time.Time `json:"to"`
	// Nodes are those of the cluster, Pods the workloads, by name.
	Nodes  []string               `json:"nodes"`
	Pods   map[string]WorkloadPod `json:"pods"`
	Lines  map[string][]Attempt   `json:"lines"` // by pod
	Events []auditv1.Event        `json:"events"`
}

// WorkloadPod identifies a pod, and counts how often its containers were started again.
type WorkloadPod struct {
	Node     string `json:"node"`
	UID      string `json:"uid"`
	Restarts int32  `json:"restarts"`
}

// Observe waits until all workloads have tried everything on an API server, and with kubelets, that are ready since a time,
// has them rest, and returns what they did after from.
func (w *Workloads) Observe(ctx context.Context, from, ready time.Time) (*WorkRecord, error) {
	r := &WorkRecord{From: from, Ready: ready, Nodes: w.agents.Nodes, Pods: map[string]WorkloadPod{}, Lines: map[string][]Attempt{}}
	pods, err := w.pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if err := w.awaitRound(ctx, pod, ready); err != nil {
			return nil, err
		}
	}
	if err := w.tell(ctx, "rest"); err != nil {
		return nil, err
	}
	r.To = time.Now()
	if pods, err = w.pods(ctx); err != nil {
		return nil, err
	}
	for _, pod := range pods {
		r.Pods[pod.Name] = describePod(pod)
		if r.Lines[pod.Name], err = w.linesSince(ctx, pod, from); err != nil {
			return nil, err
		}
	}
	r.Events, err = w.eventsSince(from)
	return r, err
}

// Work has the workloads go on after Observe.
func (w *Workloads) Work(ctx context.Context) error { return w.tell(ctx, "work") }

// pods returns the pods of all workloads, in the order of their names.
func (w *Workloads) pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := w.agents.client.Resources(w.agents.Name).List(ctx, &list); err != nil {
		return nil, err
	}
	// The DaemonSet has pods for Nodes that scenarios make, too, which no kubelet runs.
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !slices.Contains(w.agents.Nodes, p.Spec.NodeName) })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

func describePod(pod corev1.Pod) WorkloadPod {
	workloadPod := WorkloadPod{Node: pod.Spec.NodeName, UID: string(pod.UID)}
	for _, c := range pod.Status.ContainerStatuses {
		workloadPod.Restarts += c.RestartCount
	}
	return workloadPod
}

// tell runs a command of the agent's program in all pods.
func (w *Workloads) tell(ctx context.Context, command string) error {
	pods, err := w.pods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if _, err := execAgent(ctx, w.agents.typed, w.agents.cluster.Admin(), pod.Namespace, pod.Name, command); err != nil {
			return fmt.Errorf("telling the pod %s to %s: %w", pod.Name, command, err)
		}
	}
	return nil
}

// linesSince returns what a pod wrote after a time.
func (w *Workloads) linesSince(ctx context.Context, pod corev1.Pod, from time.Time) ([]Attempt, error) {
	raw, err := w.agents.typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("the log of pod %s: %w", pod.Name, err)
	}
	lines, err := parse(raw)
	return slices.DeleteFunc(lines, func(l Attempt) bool { return l.Time.Before(from) }), err
}

// awaitRound waits until a pod has tried everything after a time, with an answer each time.
func (w *Workloads) awaitRound(ctx context.Context, pod corev1.Pod, after time.Time) error {
	want, answers := len(UserKinds()), 0
	if pod.Name != w.deputy {
		want = 2 * len(w.agents.Nodes)
	}
	err := apiwait.PollUntilContextTimeout(ctx, poll, timeout, true, func(ctx context.Context) (bool, error) {
		lines, err := w.linesSince(ctx, pod, after)
		if err != nil {
			return false, nil //nolint:nilerr // a container that has not begun, a kubelet that comes back
		}
		answers = 0
		for _, l := range lines {
			if !l.isUnanswered() {
				answers++
			}
		}
		return answers >= 2*want, nil
	})
	if err != nil {
		return fmt.Errorf("the pod %s has written %d lines with an answer (expected %d): %w", pod.Name, answers, 2*want, err)
	}
	return nil
}

// eventsSince returns the audit events of the workloads' accounts after a time.
func (w *Workloads) eventsSince(from time.Time) (all []auditv1.Event, err error) {
	suffix := strings.TrimPrefix(w.agents.Name, agentName)
	for _, deputy := range []bool{false, true} {
		events, err := w.agents.cluster.EventsBy(Account(suffix, deputy))
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	all = slices.DeleteFunc(all, func(e auditv1.Event) bool { return e.StageTimestamp.Time.Before(from) })
	slices.SortFunc(all, func(a, b auditv1.Event) int { return a.StageTimestamp.Time.Compare(b.StageTimestamp.Time) })
	return all, nil
}
