package kind

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// These are the add-ons that kubeadm installs in a cluster. They have the version of the control plane on every node.
const (
	addOnImages   = "kube-proxy|coredns"
	kubeProxy     = "kube-proxy"
	kubeProxyPods = "k8s-app=kube-proxy"
)

// mendAddOns copies the images of the add-ons from the control plane to workers of other versions, whose node images
// contain other add-ons. It returns when kube-proxy runs on all nodes, because without it a pod reaches no service, not
// even the API server. If there is a registry, the kubelets have pulled the images by then.
func (c *Cluster) mendAddOns(ctx context.Context) error {
	var others []string
	for i, w := range c.opts.Workers {
		if w.Image != c.opts.baseImage() {
			others = append(others, c.worker(i))
		}
	}
	if len(others) == 0 {
		return nil
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	if err := c.shareImages(ctx, others); err != nil {
		return err
	}
	if err := replaceWaiting(ctx, client, kubeProxyPods); err != nil {
		return fmt.Errorf("replacing pods of %s: %w", kubeProxy, err)
	}
	return c.await(ctx, "has nodes without "+kubeProxy, func(ctx context.Context) error {
		set, err := client.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(ctx, kubeProxy, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if nodes := int32(len(c.Nodes())); set.Status.NumberReady != nodes {
			return fmt.Errorf("it is ready on %d of %d nodes", set.Status.NumberReady, nodes)
		}
		return nil
	})
}

// replaceWaiting deletes the pods of a DaemonSet that are not ready. A kubelet that has not found an image waits longer
// and longer before it looks again, but looks at once for a new pod.
func replaceWaiting(ctx context.Context, client kubernetes.Interface, selector string) error {
	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if isReady(&pod) {
			continue
		}
		if err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// shareImages copies the images of the add-ons from the control plane to some workers.
func (c *Cluster) shareImages(ctx context.Context, workers []string) error {
	script := `ctr --namespace k8s.io images ls --quiet | grep -E '/(` + addOnImages + `):' | xargs ctr --namespace k8s.io images export --local -`
	archive, err := execNode(ctx, c.controlPlane(), nil, "sh", "-c", script)
	if err != nil {
		return fmt.Errorf("taking the images of the add-ons from the control plane: %w", err)
	}
	return importImages(ctx, workers, archive)
}
