package kind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// kubeletPath is the path of the kubelet in node images.
const kubeletPath = "/usr/bin/kubelet"

// nodeTimeout is how long a node may take to become ready with another kubelet.
const nodeTimeout = 3 * time.Minute

// ReplaceKubelets implements clusters.NodeReplacer. One node after the other gets the kubelet of a node image,
// beginning with those of the control plane. Pods stay, except for static ones: a kubelet of another minor regards them
// as changed, so it ends etcd and the API server and starts them again.
func (c *Cluster) ReplaceKubelets(ctx context.Context, version, image string) error {
	c.life.Lock()
	defer c.life.Unlock()
	o, err := Options{Image: image, Version: version}.complete()
	if err != nil {
		return err
	}
	program, err := takeKubelet(ctx, findImage(ctx, o.Image))
	if err != nil {
		return err
	}
	for _, node := range c.Nodes() {
		if err := c.replaceKubelet(ctx, node, version, program); err != nil {
			return fmt.Errorf("replacing the kubelet of %s: %w", node, err)
		}
	}
	return nil
}

// takeKubelet returns the kubelet of a node image, as an archive.
func takeKubelet(ctx context.Context, image string) ([]byte, error) {
	container, err := runEngine(ctx, "create", "--entrypoint", "true", image)
	if err != nil {
		return nil, err
	}
	program, err := runEngineBytes(ctx, nil, "cp", "--follow-link", container+":"+kubeletPath, "-")
	_, removeErr := runEngine(context.WithoutCancel(ctx), "rm", container)
	return program, errors.Join(err, removeErr)
}

func (c *Cluster) replaceKubelet(ctx context.Context, node, version string, program []byte) error {
	stopped := time.Now()
	// systemd restarts the kubelet whenever it ends, and a running program cannot be written to.
	if _, err := execNode(ctx, node, nil, "systemctl", "stop", "kubelet"); err != nil {
		return err
	}
	if _, err := runEngineBytes(ctx, bytes.NewReader(program), "cp", "-", node+":"+path.Dir(kubeletPath)); err != nil {
		return err
	}
	if _, err := execNode(ctx, node, nil, "systemctl", "start", "kubelet"); err != nil {
		return err
	}
	if err := c.awaitKubelet(ctx, node, version, stopped); err != nil {
		return err
	}
	return c.awaitStaticPods(ctx, node)
}

// awaitStaticPods returns when all static pods of a kubelet are ready according to the kubelet. Those that it regards
// as changed are started again.
func (c *Cluster) awaitStaticPods(ctx context.Context, node string) error {
	last := errors.New("they have not been read")
	err := wait.PollUntilContextTimeout(ctx, readyPoll, nodeTimeout, true, func(ctx context.Context) (bool, error) {
		last = c.checkStaticPods(ctx, node)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the static pods of the node: %w: %w", last, err)
	}
	return c.eachServer(ctx, c.waitReady)
}

// checkStaticPods returns an error that names a static pod of a node that is not ready.
func (c *Cluster) checkStaticPods(ctx context.Context, node string) error {
	raw, err := c.get(ctx, c.controlPlane(), "/api/v1/nodes/"+node+"/proxy/pods")
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := json.Unmarshal(raw, &pods); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		isStatic := pod.Annotations[configSource] == "file"
		isReady := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if isStatic && !isReady {
			return fmt.Errorf("%s is not ready", pod.Name)
		}
	}
	return nil
}

// configSource is the annotation by which a kubelet says where it has a pod from (k8s.io/kubernetes/pkg/kubelet/types).
const configSource = "kubernetes.io/config.source"

// awaitKubelet returns when a node is ready with a kubelet of a version that has said so since a time.
func (c *Cluster) awaitKubelet(ctx context.Context, name, version string, since time.Time) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	last := "it has not been read"
	err = wait.PollUntilContextTimeout(ctx, readyPoll, nodeTimeout, true, func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			last = err.Error()
			return false, nil //nolint:nilerr // the API server may be busy, so it is asked again
		}
		last = fmt.Sprintf("it is ready: %t, its kubelet is of %s", isReadySince(node, since), node.Status.NodeInfo.KubeletVersion)
		return isReadySince(node, since) && node.Status.NodeInfo.KubeletVersion == "v"+version, nil
	})
	if err != nil {
		return fmt.Errorf("the node is not ready with a kubelet of %s: %s: %w", version, last, err)
	}
	return nil
}

// isReadySince reports whether the kubelet has said after a time that its node is ready. Times of a node's status have
// seconds.
func isReadySince(node *corev1.Node, since time.Time) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))
		}
	}
	return false
}
