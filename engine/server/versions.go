package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/clusters"
	"github.com/authzconf/authzconf/reports"
)

// controlPlaneLabel is what kubeadm gives the nodes of the control plane.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// componentLabels are the labels by which kubeadm names the component of a pod: static pods have the first, others the second.
var componentLabels = []string{"component", "k8s-app"}

// podComponents are the components that run as pods.
var podComponents = []string{reports.KubeAPIServer, "kube-controller-manager", "kube-scheduler", "etcd", "kube-proxy"}

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
	pods, err := readPods(ctx, client)
	if err != nil {
		return fmt.Errorf("the versions of the components: %w", err)
	}
	components = append(components, pods...)
	if err := s.readAPIServers(ctx, components); err != nil {
		return err
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
		if node.Status.NodeInfo.KubeletVersion == "" {
			continue // a scenario has made it, and no kubelet runs it
		}
		_, isControlPlane := node.Labels[controlPlaneLabel]
		list = append(list, reports.Component{
			Name:    reports.Kubelet,
			Node:    node.Name,
			Version: strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v"),
			Worker:  !isControlPlane,
		})
	}
	return list, nil
}

func readPods(ctx context.Context, client kubernetes.Interface) (list []reports.Component, err error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if name := nameComponent(&pod); slices.Contains(podComponents, name) {
			list = append(list, reports.Component{Name: name, Node: pod.Spec.NodeName, Version: readTag(pod.Spec.Containers[0])})
		}
	}
	return list, nil
}

// readAPIServers replaces the versions of API servers, which the names of their images say, by what each says itself.
func (s *Server) readAPIServers(ctx context.Context, components []reports.Component) error {
	cluster, isSeveral := s.cluster.(clusters.Several)
	if !isSeveral {
		return nil
	}
	servers := cluster.APIServers()
	for i := range components {
		config, isServer := servers[components[i].Node]
		if !isServer || components[i].Name != reports.KubeAPIServer {
			continue
		}
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return err
		}
		version, err := client.ServerVersionWithContext(ctx)
		if err != nil {
			return fmt.Errorf("the version of the API server on %s: %w", components[i].Node, err)
		}
		components[i].Version = strings.TrimPrefix(version.GitVersion, "v")
		components[i].Asked = len(servers) > 1 && config.Host == s.host
	}
	return nil
}

// nameComponent returns the component that a pod runs, as its labels say; nothing if they do not.
func nameComponent(pod *corev1.Pod) string {
	for _, label := range componentLabels {
		if name := pod.Labels[label]; name != "" {
			return name
		}
	}
	return ""
}

// readTag returns the version that the tag of a container's image says.
func readTag(c corev1.Container) string {
	_, tag, _ := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
	return strings.TrimPrefix(tag, "v")
}
