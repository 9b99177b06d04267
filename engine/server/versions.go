package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/reports"
)

// controlPlaneLabel is what kubeadm gives the nodes of the control plane.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// podComponents are the components that run as pods, by the label that kubeadm gives them.
var podComponents = map[string]string{
	"component=kube-apiserver": "kube-apiserver", "component=kube-controller-manager": "kube-controller-manager",
	"component=kube-scheduler": "kube-scheduler", "component=etcd": "etcd", "k8s-app=kube-proxy": "kube-proxy",
}

// witnessComponents reads the versions of everything that runs on the nodes of a cluster that has some. Kubelets say
// theirs in the status of their nodes, the others are known by the image that their pods run.
func (s *Server) witnessComponents(ctx context.Context) error {
	if !s.can.Nodes {
		return nil
	}
	client, err := kubernetes.NewForConfigAndClient(s.Admin(), s.adminHTTP)
	if err != nil {
		return err
	}
	components, err := readKubelets(ctx, client)
	if err != nil {
		return fmt.Errorf("the versions of the kubelets: %w", err)
	}
	for selector, name := range podComponents {
		more, err := readPods(ctx, client, name, selector)
		if err != nil {
			return fmt.Errorf("the version of %s: %w", name, err)
		}
		components = append(components, more...)
	}
	slices.SortFunc(components, func(a, b reports.Component) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	s.Witness.Components = components
	return nil
}

func readKubelets(ctx context.Context, client kubernetes.Interface) (list []reports.Component, err error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, node := range nodes.Items {
		_, isControlPlane := node.Labels[controlPlaneLabel]
		list = append(list, reports.Component{
			Name: reports.Kubelet, Node: node.Name, Version: strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v"), Worker: !isControlPlane,
		})
	}
	return list, nil
}

func readPods(ctx context.Context, client kubernetes.Interface, name, selector string) (list []reports.Component, err error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		list = append(list, reports.Component{Name: name, Node: pod.Spec.NodeName, Version: readTag(pod.Spec.Containers[0])})
	}
	return list, nil
}

// readTag returns the version that the tag of a container's image says.
func readTag(c corev1.Container) string {
	_, tag, _ := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
	return strings.TrimPrefix(tag, "v")
}
