// Package nodes shows on a cluster with kubelets what the node agent (engine/nodes/agent) is allowed, as the
// program that the documentation describes, in the pods of a DaemonSet: by what it writes itself, and by the audit
// events of its account. Then its pod and its node are deleted while it works.
//
// The agents send requests all the time. Nothing else that counts requests can be done on the cluster meanwhile.
package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/e2e-framework/klient"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/wait"
	"sigs.k8s.io/e2e-framework/klient/wait/conditions"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/clusters/image"
	"github.com/authzconf/authzconf/fixtures"
)

const (
	timeout = 2 * time.Minute
	poll    = 250 * time.Millisecond
)

// Cluster is what the suite needs of a target.
type Cluster interface {
	// Admin is a member of system:masters.
	Admin() *rest.Config
	// Anonymous carries no credentials.
	Anonymous() *rest.Config
	// EventsBy are the audit events of a user.
	EventsBy(user string) ([]auditv1.Event, error)
	// Rebase forgets what requests were counted so far: those of the agents.
	Rebase(ctx context.Context) error
}

// Agents is the DaemonSet of the node agent on a cluster.
type Agents struct {
	// Name is that of all its objects; User the account's user name.
	Name, User string
	Nodes      []string // those on which it runs, workers first

	cluster Cluster
	client  klient.Client
	typed   kubernetes.Interface
	objects []k8s.Object
	set     *appsv1.DaemonSet // the last of them
}

const agentName = "node-agent-"

func accountOf(suffix string) string {
	return "system:serviceaccount:" + agentName + suffix + ":" + agentName + suffix
}

// Deploy runs the agent on every node, and returns when it does. Its image is
// there (LoadAgent). Names are unique by suffix.
func Deploy(ctx context.Context, c Cluster, suffix string) (_ *Agents, err error) {
	name := agentName + suffix
	a := &Agents{Name: name, User: accountOf(suffix), cluster: c}
	if a.client, err = klient.New(c.Admin()); err != nil {
		return nil, err
	}
	if a.typed, err = kubernetes.NewForConfig(c.Admin()); err != nil {
		return nil, err
	}
	if a.Nodes, err = Live(ctx, a.typed); err != nil {
		return nil, err
	}
	if len(a.Nodes) < 2 {
		return nil, fmt.Errorf("the cluster has %d nodes (expected at least 2)", len(a.Nodes))
	}
	if a.objects, a.set, err = objects(name); err != nil {
		return nil, err
	}
	// Each tries to be the others, too.
	agent := &a.set.Spec.Template.Spec.Containers[0]
	agent.Env = append(agent.Env, corev1.EnvVar{Name: "OTHER_NODE_NAMES", Value: strings.Join(a.Nodes, ",")})
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Remove(context.WithoutCancel(ctx)))
		}
	}()
	for _, o := range a.objects {
		if err := a.client.Resources().Create(ctx, o); err != nil {
			return nil, fmt.Errorf("creating %T: %w", o, err)
		}
	}
	return a, a.ready(ctx)
}

func (a *Agents) ready(ctx context.Context) error {
	all := conditions.New(a.client.Resources()).ResourceMatch(a.set, func(o k8s.Object) bool {
		status := o.(*appsv1.DaemonSet).Status
		return int(status.NumberReady) == len(a.Nodes) && int(status.DesiredNumberScheduled) == len(a.Nodes)
	})
	if err := wait.For(all, a.waitOptions(ctx)...); err != nil {
		return fmt.Errorf("%d of %d agents run after %s: %w", a.set.Status.NumberReady, len(a.Nodes), timeout, err)
	}
	return nil
}

func (a *Agents) waitOptions(ctx context.Context) []wait.Option {
	return []wait.Option{wait.WithContext(ctx), wait.WithTimeout(timeout), wait.WithInterval(poll), wait.WithImmediate()}
}

// Remove deletes what Deploy made, and returns when no agent can do anything any more: one that the API server took for gone
// with its node may run on, and has a token for as long as the API server remembers it.
func (a *Agents) Remove(ctx context.Context) error {
	var errs []error
	for _, o := range slices.Backward(a.objects) {
		if o.GetUID() != "" {
			errs = append(errs, utilerrors.FilterOut(a.client.Resources().Delete(ctx, o), apierrors.IsNotFound))
		}
	}
	isGone := conditions.New(a.client.Resources(a.Name)).ResourceListN(&corev1.PodList{}, 0)
	errs = append(errs, wait.For(isGone, a.waitOptions(ctx)...))
	clusters.Pause(ctx, tokenTTL+slack)
	return errors.Join(append(errs, a.cluster.Rebase(ctx))...)
}

func (a *Agents) pod(ctx context.Context, node string) (*corev1.Pod, error) {
	var list corev1.PodList
	if err := a.client.Resources(a.Name).List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName == node && p.DeletionTimestamp == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no agent runs on node %s", node)
}

// Token reads the token that the kubelet projected into a running pod of the agent. config has to be allowed to
// exec into it; nobody but the caller sees the token.
func Token(ctx context.Context, config *rest.Config, namespace, pod string) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	token, err := execAgent(ctx, client, config, namespace, pod, "token")
	if err != nil {
		return "", fmt.Errorf("reading the token of pod %s/%s: %w", namespace, pod, err)
	}
	if token == "" {
		return "", fmt.Errorf("pod %s/%s has an empty token", namespace, pod)
	}
	return token, nil
}

// execAgent runs the agent's program once more in its container, with one argument, and returns what it writes.
func execAgent(ctx context.Context, client kubernetes.Interface, config *rest.Config, namespace, pod, argument string) (string, error) {
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{agentPath, argument}, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var out, problem bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &problem}); err != nil {
		return "", fmt.Errorf("%w %s", err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

const (
	// program is the agent's package, built from the module that this is.
	program   = "github.com/authzconf/authzconf/engine/nodes/agent"
	agentPath = "/agent" // the agent within its image
	// AgentVariable names a built agent, a static executable for the nodes' architecture, where there are no sources or Go.
	AgentVariable = "AUTHZCONF_NODE_AGENT"
	// manifest is the fixture with the objects that run the agent, and manifestName what they are called there.
	manifest     = "nodes/agent.yaml"
	manifestName = "node-agent"
)

// LoadAgent builds the image and puts it on the nodes.
func LoadAgent(ctx context.Context, nodes image.Loader) error {
	agent, err := agentImage(ctx)
	if err != nil {
		return fmt.Errorf("the node agent: %w", err)
	}
	return agent.Load(ctx, nodes)
}

func agentImage(ctx context.Context) (image.Image, error) {
	_, set, err := objects(manifestName)
	if err != nil {
		return image.Image{}, err
	}
	return image.Of(ctx, set.Spec.Template.Spec, AgentVariable, program, agentPath)
}

// objects are what runs the agent on every node, in order, and the last of them. The manifest's one name becomes name.
func objects(name string) (all []k8s.Object, set *appsv1.DaemonSet, err error) {
	if all, err = readManifest(manifest, strings.NewReplacer(": "+manifestName+"\n", ": "+name+"\n")); err != nil {
		return nil, nil, err
	}
	return all, all[len(all)-1].(*appsv1.DaemonSet), nil
}

// readManifest returns the objects of a fixture, with names in place of those that it has.
func readManifest(file string, names *strings.Replacer) (all []k8s.Object, err error) {
	raw, err := fixtures.FS.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(names.Replace(string(raw)), "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, o.(k8s.Object))
	}
	return all, nil
}

// Pod is a single pod with the agent on a node, made like those of the DaemonSet. It does nothing by itself.
func Pod(name, account, node string) (*corev1.Pod, error) {
	_, set, err := objects(manifestName)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName = node, account
	pod.Spec.Containers[0].Args = []string{"idle"}
	return pod, nil
}
